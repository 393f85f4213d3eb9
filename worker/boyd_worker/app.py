"""The app for Celery's own tools: `celery -A boyd_worker.app inspect ping`, Flower.

It is configured like every process, and runs no tasks: `boyd worker` does.
"""

from __future__ import annotations

import sys

from kombu import Connection

from boyd.embedded.state_folder import with_redis
from boyd.errors import ConfigError
from boyd.messaging.celery_app import make_app
from boyd.settings.process_settings import load_settings

try:
    settings = with_redis(load_settings())
    # With several brokers each has its own workers: `celery -b` names another one.
    app = make_app(settings.broker_urls[0] if settings.broker_urls else settings.redis_url or "")
    # Our connections either send or consume, and few do; Flower does both on 16 at once.
    app.amqp.Connection = Connection
    app.conf.broker_pool_limit = 20
except ConfigError as error:
    sys.exit(f"boyd_worker.app: {error}")
if not settings.celery.events:
    sys.exit("boyd_worker.app: set BOYD_CELERY__EVENTS=true, for all processes of Boyd too")
