"""The web console: pages for people, served by the API from the same services as its routes."""

from __future__ import annotations

from flask import Flask

from boyd_api.console import agent, agents, approval, fleet, inbox, sign_in, stream
from boyd_api.console.pages import CONSOLE, Pages, mount
from boyd_api.services import Services

_ALL: tuple[Pages, ...] = (
    sign_in.pages,
    inbox.pages,
    approval.pages,
    agent.pages,
    agents.pages,
    fleet.pages,
    stream.pages,
)


def serve_console(app: Flask, services: Services) -> None:
    """Serve the console below `/console`, and lead `/` to it."""
    mount(app, services, _ALL)


__all__ = ["CONSOLE", "serve_console"]
