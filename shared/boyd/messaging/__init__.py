"""Messages between processes: the Celery app and the dispatcher."""
