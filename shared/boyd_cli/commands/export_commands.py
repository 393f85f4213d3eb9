"""`boyd archive` and `boyd traces`: copy ended work into a database, or export it by OTLP."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from boyd.embedded.state_folder import with_redis
from boyd.errors import ConfigError
from boyd.settings.logs import setup_logging
from boyd.settings.process_settings import Settings
from boyd_cli.options import settings_options

if TYPE_CHECKING:
    from boyd.export.archive.copier import Archiving
    from boyd.export.tracing.trace_export import TraceExport
    from boyd.export.work_follower import WorkFollower


@click.command()
@settings_options
def archive(settings: Settings) -> None:
    """Copy ended iterations, runs, approvals, executions, investigations and audit entries.

    Copies from Redis into the database that BOYD_ARCHIVE_URL names, until SIGTERM. Several may run.
    """
    _run("archive", settings)


@click.command()
@settings_options
def traces(settings: Settings) -> None:
    """Export traces of ended iterations, approvals, procedures and investigations.

    Sends spans by OTLP over HTTP to the collector that BOYD_TRACES__ENDPOINT or
    OTEL_EXPORTER_OTLP_ENDPOINT names, until SIGTERM. If several run, one exports.
    """
    _run("traces", settings)


def _run(name: str, settings: Settings) -> None:
    setup_logging(settings.log_level, settings.log_format)
    follower = FOLLOWERS[name](settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: follower.stop())
    follower.run()
    sys.exit(0)


def make_archiving(settings: Settings) -> Archiving:
    """Build the copier that `boyd archive` runs.

    Raises:
        ConfigError: no database is named, or it cannot be used.
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
    url = with_redis(settings).redis_url or ""
    logging.getLogger("boyd.archive").info("archive %s", database.safe_url)
    return Archiving(Store(connect(url)), Store(connect(url)), database, settings.archive_keep)


def make_trace_export(settings: Settings) -> TraceExport:
    """Build the export that `boyd traces` runs.

    Raises:
        ConfigError: no collector is named, or packages are missing.
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

    url = with_redis(settings).redis_url or ""
    sender = OtlpSender(settings.traces.endpoint)
    logging.getLogger("boyd.tracing").info("traces of deployment %s", settings.traces.deployment)
    return TraceExport(Store(connect(url)), Store(connect(url)), sender, settings.traces)


def check_installed() -> None:
    """Refuse to go on without the packages of the extra.

    Raises:
        ConfigError: they are not installed.
    """
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        raise ConfigError("traces need OpenTelemetry: pip install 'boyd[otel]'")


#: What follows the work of all agents, by its command.
FOLLOWERS: Mapping[str, Callable[[Settings], WorkFollower[Any]]] = {
    "archive": make_archiving,
    "traces": make_trace_export,
}
