"""Boyd on Celery: the worker, its tasks, and beat."""
