"""`boyd traces`: exports traces of ended work by OTLP."""

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

log = logging.getLogger("boyd.tracing")


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
    if not settings.traces.exported:
        raise ConfigError(
            "traces.endpoint is missing: set BOYD_TRACES__ENDPOINT to the collector's address,"
            " such as http://collector:4318"
        )
    # They load OpenTelemetry.
    from boyd.export.tracing.otlp import OtlpSender
    from boyd.export.tracing.trace_export import TraceExport
    from boyd.store import Store, connect

    setup_logging(settings.log_level, settings.log_format)
    url = with_redis(settings).redis_url or ""
    stores = Store(connect(url)), Store(connect(url))
    export = TraceExport(*stores, OtlpSender(settings.traces.endpoint), settings.traces)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: export.stop())
    log.info("traces of deployment %s", settings.traces.deployment)
    export.run()
    sys.exit(0)
