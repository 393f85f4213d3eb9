"""`boyd archive` and `boyd traces`: copy ended work into a database, or export it by OTLP."""

from __future__ import annotations

import logging
import signal
import sys
from importlib.util import find_spec

import click

from boyd.embedded.state_folder import with_redis
from boyd.errors import ConfigError
from boyd.settings.logs import setup_logging
from boyd.settings.process_settings import Settings
from boyd_cli.options import settings_options

archive_log = logging.getLogger("boyd.archive")


@click.command()
@settings_options
def archive(settings: Settings) -> None:
    """Copy ended iterations, runs, approvals, executions, investigations and audit entries.

    Copies from Redis into the database that BOYD_ARCHIVE_URL names, until SIGTERM. Several may run.
    """
    # They load SQLAlchemy.
    from boyd.export.archive.copier import Archiving
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
    archive_log.info("archive %s", database.safe_url)
    archiving.run()
    database.close()
    sys.exit(0)


traces_log = logging.getLogger("boyd.tracing")


def check_installed() -> None:
    """Refuse to go on without the packages of the extra.

    Raises:
        ConfigError: they are not installed.
    """
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        raise ConfigError("traces need OpenTelemetry: pip install 'boyd[otel]'")


@click.command()
@settings_options
def traces(settings: Settings) -> None:
    """Export traces of ended iterations, approvals, procedures and investigations.

    Sends spans by OTLP over HTTP to the collector that BOYD_TRACES__ENDPOINT or
    OTEL_EXPORTER_OTLP_ENDPOINT names, until SIGTERM. If several run, one exports.
    """
    check_installed()
    if not settings.traces.is_exporting:
        raise ConfigError(
            "traces.endpoint is missing: set BOYD_TRACES__ENDPOINT to the collector's address,"
            " such as http://collector:4318"
        )
    # They load OpenTelemetry.
    from boyd.export.tracing.trace_export import OtlpSender, TraceExport
    from boyd.store import Store, connect

    setup_logging(settings.log_level, settings.log_format)
    url = with_redis(settings).redis_url or ""
    stores = Store(connect(url)), Store(connect(url))
    export = TraceExport(*stores, OtlpSender(settings.traces.endpoint), settings.traces)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: export.stop())
    traces_log.info("traces of deployment %s", settings.traces.deployment)
    export.run()
    sys.exit(0)
