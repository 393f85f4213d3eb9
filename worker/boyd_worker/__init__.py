"""The processes that run agents: Celery worker and beat."""
