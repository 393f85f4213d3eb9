"""The app for Celery's own tools: `celery -A boyd_worker.app inspect ping`, Flower.

It is configured like every process, and runs no tasks: `boyd worker` does.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from celery import Celery
from kombu import Connection

from boyd.embedded.state_folder import with_redis
from boyd.errors import ConfigError
from boyd.messaging.celery_app import make_app
from boyd.settings.process_settings import load_settings


def __getattr__(name: str) -> Any:
    """Make the app when a tool asks for it, so that importing the module needs no settings."""
    if name == "app":
        return _make_tool_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _make_tool_app() -> Celery:
    """The app; ends the process with a message if the settings do not permit it."""
    try:
        settings = with_redis(load_settings())
        # With several brokers each has its own workers: `celery -b` names another one.
        broker, *_ = (*settings.broker_urls, settings.redis_url or "")
        app = make_app(broker)
    except ConfigError as error:
        sys.exit(f"boyd_worker.app: {error}")
    if not settings.celery.events:
        sys.exit("boyd_worker.app: set BOYD_CELERY__EVENTS=true, for all processes of Boyd too")
    # Our connections either send or consume, and few do; Flower does both on 16 at once.
    app.amqp.Connection = Connection
    app.conf.broker_pool_limit = 20
    return app
