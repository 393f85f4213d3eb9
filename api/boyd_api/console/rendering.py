"""Rendering of the console: the frame of every page, templates, their filters, and assets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property, reduce
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from flask import Blueprint, Response, current_app, request
from jinja2 import ChoiceLoader, Environment, PackageLoader, PrefixLoader, StrictUndefined

from boyd import naming
from boyd.models import Model, utc_now
from boyd.store import DEPLOYMENT
from boyd.store.freezes import Stop
from boyd.text.formatting import counted, dollars, visible
from boyd.text.version import VERSION
from boyd_api.console.declared_pages import NavigationLink, load_guest_pages
from boyd_api.console.inbox_list import Inbox, read_inbox, read_stops
from boyd_api.console.page_request import PageRequest, new_nonce
from boyd_api.http.problems import HttpProblem, not_found
from boyd_api.http.request_context import unreadable_names
from boyd_api.http.services import Services


@dataclass(frozen=True)
class AgentLink:
    """An agent in the switch, and what stops it."""

    id: str
    name: str
    paused: Stop | None
    frozen: Stop | None
    revoked: Stop | None


@dataclass(frozen=True)
class Frame:
    """The state of the deployment, as each page shows it.

    Attributes:
        agents: those in service that the reader may see.
        agent: the id of the agent that links lead to: that of the page, else the default one.
        frozen: the deployment-wide freeze.
    """

    page: PageRequest
    agents: list[AgentLink]
    agent: str | None
    frozen: Stop | None

    @property
    def inactive_agents(self) -> list[AgentLink]:
        """The agents that are paused or revoked, or frozen by themselves."""
        return [link for link in self.agents if link.paused or link.frozen or link.revoked]

    @cached_property
    def inbox(self) -> Inbox:
        """The approvals that wait."""
        return read_inbox(self.page, [agent.id for agent in self.agents])

    def may_resume(self, agent_id: str) -> bool:
        """Check whether the reader may resume a stopped procedure of an agent."""
        return any(not stop.no_resume for stop in read_stops(self.page, agent_id))


def read_frame(page: PageRequest) -> Frame:
    """Read the frame for a page."""
    store, entries = page.services.store, page.ctx.agents
    serving = {name: entry for name, entry in entries.items() if entry.retired_at is None}
    freezes, paused = store.freezes.all(), store.fleet.pauses(list(serving))
    revoked = store.freezes.revocations()
    links = [
        AgentLink(name, entry.name, paused.get(name), freezes.get(name), revoked.get(name))
        for name, entry in serving.items()
    ]
    return Frame(page, links, _agent(page, serving), freezes.get(DEPLOYMENT))


def _agent(page: PageRequest, serving: Mapping[str, object]) -> str | None:
    if page.ctx.chosen is not None:
        return page.ctx.chosen.entry.id
    default = page.services.settings.agent
    return default if default in serving else next(iter(serving), None)


_PACKAGE = "boyd_api.console"
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
#: Nothing but our own scripts and styles, by nonce; htmx turns responses into elements.
_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types htmx"
)


def render_page(page: PageRequest, template: str, code: int = 200, /, **values: Any) -> Response:
    """Respond with a template, whose frame shows the state of the deployment.

    A view that has read the frame for itself passes it on.
    """
    common = {
        "page": page,
        "frame": values.pop("frame", None) or read_frame(page),
        "links": _guest_links(page),
        "now": page.ctx.now or utc_now(),
        "layout": "layout.html",
        # Read again, the page would lose why a form was refused, and what was written in it.
        "is_refusal": code >= 400,
        # The bar adds to it while it is rendered.
        "unreadable": unreadable_names(page.ctx.key),
    }
    return _respond(template, code, page.nonce, {**common, **values})


def _guest_links(page: PageRequest) -> list[NavigationLink]:
    links = [pages.link for pages in load_guest_pages().values() if pages.link]
    settings: Any = page.services.settings
    return [
        link
        for link in links
        if not link.needs
        or reduce(lambda group, name: getattr(group, name, None), link.needs.split("."), settings)
    ]


def render_public(template: str, nonce: str, status: int = 200, **values: Any) -> Response:
    """Render a page that anybody may see: the login, or an error."""
    return _respond(template, status, nonce, values)


def problem(error: HttpProblem) -> Response:
    """The response that tells what went wrong."""
    nonce = new_nonce()
    status = error.kind.status
    values = {"problem": error, "status": status}
    if "HX-Request" in request.headers:
        # A page that refreshes itself stays, and shows that it is out of date.
        return Response(str(error), status, mimetype="text/plain")
    return _respond("problem.html", status, nonce, values)


def _respond(template: str, status: int, nonce: str, values: dict[str, Any]) -> Response:
    text = _templates().get_template(template).render(nonce=nonce, **values)
    response = Response(text, status, mimetype="text/html")
    response.headers["Content-Security-Policy"] = _POLICY.format(nonce=nonce)
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
    return response


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(_PACKAGE), PrefixLoader(_guest_templates())]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(asset=asset, version=VERSION, counted=counted)
    environment.filters.update(
        when=when, ago=ago, span=span, ms=ms, pretty=pretty, compact=compact, iso=iso
    )
    environment.filters.update(short=naming.short, dollars=dollars, who=who, visible=visible)
    return environment


def _guest_templates() -> dict[str, PackageLoader]:
    return {name: PackageLoader(package) for name, package in _guest_packages()}


def _guest_packages() -> list[tuple[str, str]]:
    return [(name, pages.package) for name, pages in load_guest_pages().items() if pages.package]


def serve_static(blueprint: Blueprint) -> None:
    """Serve the assets; their addresses change with their content, so browsers keep them.

    The icon also has the address that browsers ask for by themselves.
    """
    rule = "/console/static/<digest>/<path:name>"
    blueprint.add_url_rule(rule, "static_asset", _serve_asset, methods=["GET"])
    blueprint.add_url_rule("/favicon.ico", "favicon", _serve_icon, methods=["GET"])


def asset(name: str) -> str:
    """The address of an asset."""
    return f"/console/static/{_digest(name)}/{name}"


def _serve_asset(digest: str, name: str) -> Response:
    if name not in _assets() or _digest(name) != digest:
        raise not_found(f"no asset {name!r}")
    return _cacheable(name, "max-age=31536000, immutable")


def _serve_icon() -> Response:
    return _cacheable("icon.svg", "max-age=86400")


def _cacheable(name: str, period: str) -> Response:
    response = Response(_assets()[name].read_bytes(), mimetype=_TYPES[name.rpartition(".")[2]])
    response.headers["Cache-Control"] = f"public, {period}"
    return response


@cache
def _assets() -> dict[str, Traversable]:
    """The files of the console, and those of guests below the guest's name."""
    folders = [("", _PACKAGE), *((f"{name}/", package) for name, package in _guest_packages())]
    return {
        prefix + path.name: path
        for prefix, package in folders
        if (folder := files(package) / "static").is_dir()
        for path in folder.iterdir()
        if path.name.rpartition(".")[2] in _TYPES
    }


@cache
def _digest(name: str) -> str:
    """The start of the digest of an asset."""
    return sha256(_assets()[name].read_bytes()).hexdigest()[:16]


def who(principal: str) -> str:
    """A principal with its readable name in front, if one is known; names need not be unique."""
    services: Services = current_app.extensions["boyd"]
    name = services.names().get(principal)
    return f"{name} ({principal})" if name else principal


def iso(at: datetime) -> str:
    """A time for machines."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def when(at: datetime) -> str:
    """A time for people, with its zone."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def ago(at: datetime, now: datetime) -> str:
    """A time relative to *now*: `12 s ago`, or `in 3 min`."""
    seconds = (now - at).total_seconds()
    return f"{span(seconds)} ago" if seconds > -1 else f"in {span(-seconds)}"


def span(seconds: float) -> str:
    """A length of time in its largest unit, and the next one if that is short: `1 h 20 min`."""
    left = int(seconds)
    units = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    for index, (size, name) in enumerate(units):
        if left >= size:
            more, below = left % size, units[index + 1 : index + 2]
            text = f"{left // size} {name}"
            smaller = more // below[0][0] if below else 0
            return f"{text} {smaller} {below[0][1]}" if smaller and left < 10 * size else text
    return "0 s"


def ms(milliseconds: float) -> str:
    """A duration given in milliseconds."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 60_000 else span(milliseconds / 1000)


def pretty(value: Any) -> str:
    """A value as indented JSON."""
    return visible(json.dumps(_wire(value), ensure_ascii=False, indent=2))


def compact(value: Any) -> str:
    """A value as JSON on one line."""
    return visible(json.dumps(_wire(value), ensure_ascii=False))


def _wire(value: Any) -> Any:
    return value.to_wire() if isinstance(value, Model) else value
