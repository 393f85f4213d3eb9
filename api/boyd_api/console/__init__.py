"""The web console: pages for people, served by the API from the same services as its routes."""

from __future__ import annotations

from flask import Flask

from boyd_api.console import (
    agent_page,
    agents_page,
    approval_page,
    audit_page,
    fleet_page,
    history_page,
    inbox_page,
    investigations_page,
    keys_page,
    replay_page,
    runs_page,
    sign_in,
    stream,
)
from boyd_api.console.declared_pages import Pages, load_guest_pages
from boyd_api.console.pages import CONSOLE, mount
from boyd_api.http.services import Services

_ALL: tuple[Pages, ...] = (
    sign_in.pages,
    inbox_page.pages,
    approval_page.pages,
    agents_page.pages,
    agent_page.pages,
    history_page.pages,
    replay_page.pages,
    fleet_page.pages,
    audit_page.pages,
    keys_page.pages,
    runs_page.pages,
    investigations_page.pages,
    stream.pages,
)


def serve_console(app: Flask, services: Services) -> None:
    """Serve the console below `/console`, with the pages that other packages add."""
    mount(app, services, [*_ALL, *load_guest_pages().values()])


__all__ = ["CONSOLE", "serve_console"]
