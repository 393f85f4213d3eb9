"""An API over an agent in a lab: requests start iterations that end before they are answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fakeredis
from flask import Flask

from boyd.engine import UnitHint
from boyd.models import Actor, Phase, Scope
from boyd.settings import load_settings
from boyd.store import Store
from boyd.testing import Lab
from boyd_api.app import create_app
from boyd_api.services import Services
from kit import Recorder, agent, choice, chooses, reads, seen, sees

MAKER = Actor(principal="maker")


class InlineCourier:
    """Delivers at once what it is given, unless it is held."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.held = False

    def send(
        self, agent_id: str, iteration: int, epoch: int, phase: Phase, queue: str | None = None
    ) -> None:
        """Deliver a phase and all that follows."""
        self.lab.courier.send(agent_id, iteration, epoch, phase, queue)
        if not self.held:
            self.lab.deliver()

    def fan_out(self, agent_id: str, iteration: int, units: Sequence[UnitHint]) -> None:
        """Deliver units."""
        self.lab.courier.fan_out(agent_id, iteration, units)

    def order(self, agent_id: str, name: str, attempt: int, queue: str | None) -> None:
        """Deliver an order."""
        self.lab.courier.order(agent_id, name, attempt, queue)
        if not self.held:
            self.lab.deliver()


class Site:
    """An API, the lab behind it, and keys for it."""

    def __init__(self, lab: Lab, server: Any, **api: Any) -> None:
        self.lab = lab
        self.server = server
        self.courier = InlineCourier(lab)
        settings = load_settings({"api": {"max_wait": 0.2, **api}})
        self.services = Services(settings, open_store=self._open, courier=self.courier)
        self.app: Flask = create_app(settings, self.services)
        self.client: Any = self.app.test_client()
        self.admin = self.key("admin")

    def _open(self, _: float) -> Store:
        return Store(fakeredis.FakeRedis(server=self.server, decode_responses=True))

    @property
    def store(self) -> Store:
        """The store of the deployment."""
        return self.lab.whole

    def key(self, *scopes: Scope, **settings: Any) -> dict[str, str]:
        """The headers of a new key."""
        who = {"principal": "alice", **settings}
        name, principal = who.pop("name", "test"), who.pop("principal")
        _, text = self.store.access.create(name, principal, scopes, by=MAKER, **who)
        return {"Authorization": f"Bearer {text}"}

    def get(self, path: str, **more: Any) -> Any:
        """GET below the base, with the admin key unless *headers* say otherwise."""
        return self.open("GET", path, **more)

    def post(self, path: str, json: Any = None, **more: Any) -> Any:
        """POST JSON below the base, likewise."""
        if json is not None:
            more["json"] = json
        return self.open("POST", path, **more)

    def open(self, method: str, path: str, **more: Any) -> Any:
        """Make a request below the base."""
        headers = {**self.admin, **more.pop("headers", {})}
        return self.client.open(f"/api/v0{path}", method=method, headers=headers, **more)


def make_lab(server: Any) -> Lab:
    """An agent that sees, understands and acts."""
    parts = [
        sees("cpu", seen("cpu"), seen("memory")),
        reads("load", "the cpu is busy"),
        chooses(choice("p:do")),
        Recorder().action(),
    ]
    return Lab(agent(*parts), client=fakeredis.FakeRedis(server=server, decode_responses=True))
