"""The web console: pages for people, served by the API from the same services as its routes."""

from __future__ import annotations

from flask import Flask

from boyd_api.console import (
    administration_page,
    agent_page,
    answer_link_page,
    approval_page,
    fleet_page,
    history_page,
    investigations_page,
    runs_page,
    sign_in,
    stream,
    target_page,
)
from boyd_api.console.declared_pages import Pages, load_guest_pages
from boyd_api.console.pages import CONSOLE, mount
from boyd_api.http.services import Services

_ALL: tuple[Pages, ...] = (
    sign_in.pages,
    approval_page.inbox_pages,
    approval_page.pages,
    answer_link_page.pages,
    agent_page.list_pages,
    agent_page.kiosk_pages,
    agent_page.pages,
    history_page.pages,
    history_page.replay_pages,
    fleet_page.pages,
    administration_page.audit_pages,
    administration_page.key_pages,
    runs_page.pages,
    investigations_page.pages,
    target_page.pages,
    stream.pages,
)


def serve_console(app: Flask, services: Services) -> None:
    """Serve the console below `/console`, with the pages that other packages add."""
    mount(app, services, [*_ALL, *load_guest_pages().values()])


__all__ = ["CONSOLE", "serve_console"]
