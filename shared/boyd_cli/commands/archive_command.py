"""`boyd archive`: copies ended work out of Redis into a database."""

from __future__ import annotations

import logging
import signal
import sys

import click

from boyd.embedded.state_folder import with_redis
from boyd.errors import ConfigError
from boyd.settings.logs import setup_logging
from boyd.settings.process_settings import Settings
from boyd_cli.options import settings_options

log = logging.getLogger("boyd.archive")


@click.command()
@settings_options
def archive(settings: Settings) -> None:
    """Copy ended iterations, runs, approvals, executions, investigations and audit entries.

    Copies from Redis into the database that BOYD_ARCHIVE_URL names, until SIGTERM. Several may run.
    """
    # They load SQLAlchemy.
    from boyd.export.archive.archiving import Archiving
    from boyd.export.archive.database import Database
    from boyd.store import Store, connect

    if not settings.archive_url:
        raise ConfigError(
            "archive_url is missing: set BOYD_ARCHIVE_URL to postgresql://USER@HOST/NAME,"
            " or to sqlite:////PATH with the path of a file"
        )
    database = Database(settings.archive_url, writes=True)
    setup_logging(settings.log_level, settings.log_format)
    url = with_redis(settings).redis_url or ""
    stores = Store(connect(url)), Store(connect(url))
    archiving = Archiving(*stores, database, settings.archive_keep)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: archiving.stop())
    log.info("archive %s", database.shown)
    archiving.run()
    database.close()
    sys.exit(0)
