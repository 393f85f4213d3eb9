"""The phases as plain functions: no Celery, no Redis, no Flask."""
