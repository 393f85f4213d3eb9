"""The Flask application; it holds no state, so any number of copies may run."""

from __future__ import annotations

from flask import Flask, Response, jsonify

from boyd.settings import Settings
from boyd.version import VERSION


def create_app(settings: Settings) -> Flask:
    """Wire the application; connects to nothing until a request needs it."""
    app = Flask("boyd_api")
    app.extensions["boyd.settings"] = settings

    @app.get("/healthz")
    def healthz() -> Response:
        """Say that this process answers, whatever else is missing."""
        return jsonify(status="ok", version=VERSION)

    return app
