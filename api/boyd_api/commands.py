"""The command that starts the API: `boyd api`."""

from __future__ import annotations

import logging
import socket
import threading

import click

from boyd.errors import ConfigError
from boyd.settings.logs import setup_logging
from boyd.settings.process_settings import Settings
from boyd_cli.options import Whole, settings_options

log = logging.getLogger("boyd.api")


@click.command()
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=Whole(0, 65535), help="Port; 0 takes a free one.")
@settings_options
def api(settings: Settings, host: str | None, port: int | None) -> None:
    """Serve the HTTP API until SIGTERM; requests in flight are answered first."""
    from boyd_api.app import create_app
    from boyd_api.http.server import serve
    from boyd_api.http.services import Services

    setup_logging(settings.log_level, settings.log_format)
    changes = {
        key: value for key, value in {"host": host, "port": port}.items() if value is not None
    }
    where = settings.api.model_copy(update=changes)
    services = Services(settings.model_copy(update={"api": where}))
    app = create_app(services.settings, services)
    if services.provider is not None:
        # In a thread: the API serves keys even if the provider does not answer.
        threading.Thread(target=services.provider.check, daemon=True).start()
    listening = listen(where.host, where.port)
    log.info("API on http://%s:%d", where.host, listening.getsockname()[1])
    if where.warning:
        log.warning("%s", where.warning)
    serve(app, listening, services.settings, services.stop)


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; raises `ConfigError` if it cannot."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        reason = f"{error.strerror or error}; choose another with --port or BOYD_API__PORT"
        raise ConfigError(f"the API cannot listen on {host}:{port}: {reason}") from None
