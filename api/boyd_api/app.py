"""The Flask application; it holds no state, so any number of copies may run (H6)."""

from __future__ import annotations

from flask import Flask

from boyd.settings.process import Settings
from boyd_api.routes import ALL
from boyd_api.routing import Rest
from boyd_api.services import Services
from boyd_api.serving import bind

#: The most bytes of a form part; we read none, so nothing may use memory for one.
_FORM_MEMORY = 0


def create_app(settings: Settings, services: Services | None = None) -> Flask:
    """Wire the application; connects to nothing until a request needs it.

    Raises:
        ConfigError: it would let everybody in from other machines.
    """
    services = services or Services(settings)
    app = Flask("boyd_api", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = settings.api.max_body
    app.config["MAX_FORM_MEMORY_SIZE"] = _FORM_MEMORY
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.url_map.merge_slashes = False
    app.url_map.converters["rest"] = Rest
    app.extensions["boyd"] = services
    bind(app, services, ALL)
    return app
