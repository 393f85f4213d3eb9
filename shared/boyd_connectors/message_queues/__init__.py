"""Watches the queues of RabbitMQ, Celery and Redis, empties them and returns dead letters."""
