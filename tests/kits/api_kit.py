"""An API over an agent in a lab: requests start iterations that end before they are answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any
from unittest import mock

import redis
from flask import Flask
from pydantic import BaseModel, Field
from werkzeug.routing import Map

from boyd import Agent, Decision, Perform, Plugin, action, endpoint
from boyd.models import (
    ActionResult,
    Actor,
    ApprovalPolicy,
    EndpointReply,
    EndpointRequest,
    JsonObject,
    Level,
    Mode,
    Phase,
    Proposal,
    Scope,
)
from boyd.runtime import BatchHint
from boyd.settings.process_settings import Settings, load_settings
from boyd.store import Retention, Store
from boyd.testing import Lab
from boyd_api.app import create_app
from boyd_api.http import services
from boyd_api.http.services import Services
from harness import wait_until
from kit import Recorder, agent, choice, chooses, reads, seen, sees
from lab_redis import client_of

MAKER = Actor(principal="maker")


@cache
def _routing() -> Map:
    """The compiled routes of the API: the same for every application, and slow to compile."""
    settings = load_settings({})
    return create_app(settings, Services(settings)).url_map


def application(settings: Settings, services: Services) -> Flask:
    """An application whose routes were compiled once for all tests of a process."""
    routing = _routing()
    with mock.patch.object(Map, "add", _leave_out):
        app = create_app(settings, services)
    app.url_map = routing
    return app


def _leave_out(*_: object) -> None:
    """Add no rule; a mock would note each of a hundred calls."""


class InlineDispatcher:
    """Delivers at once what it is given, unless it is held."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.held = False

    def send(
        self, agent_id: str, iteration: int, epoch: int, phase: Phase, queue: str | None = None
    ) -> None:
        """Deliver a phase and all that follows."""
        self.lab.dispatcher.send(agent_id, iteration, epoch, phase, queue)
        if not self.held:
            self.lab.deliver()

    def fan_out(self, agent_id: str, iteration: int, batches: Sequence[BatchHint]) -> None:
        """Deliver batches."""
        self.lab.dispatcher.fan_out(agent_id, iteration, batches)

    def job(self, agent_id: str, name: str, attempt: int, queue: str | None) -> None:
        """Deliver a job."""
        self.lab.dispatcher.job(agent_id, name, attempt, queue)
        if not self.held:
            self.lab.deliver()


class Site:
    """An API, the lab behind it, and keys for it."""

    def __init__(
        self,
        lab: Lab,
        server: Any,
        intake: dict[str, Any] | None = None,
        oidc: dict[str, Any] | None = None,
        rights: dict[str, list[str]] | None = None,
        **api: Any,
    ) -> None:
        self.lab = lab
        self.server = server
        self.dispatcher = InlineDispatcher(lab)
        groups = {"api": {"max_wait": 0.2, **api}, "intake": intake or {}, "oidc": oidc or {}}
        groups["rights"] = rights or {}
        settings = load_settings(groups)
        self.services = Services(settings, open_store=self._open, dispatcher=self.dispatcher)
        self.app = application(settings, self.services)
        # However slow the test is, the workers of its lab are alive.
        self.app.before_request(lab.stay_alive)
        self.client: Any = self.app.test_client()
        self.admin = self.key("admin")

    def _open(self, _: float) -> Store:
        return Store(client_of(self.server))

    @property
    def store(self) -> Store:
        """The store of the deployment."""
        return self.lab.whole

    def key(self, *scopes: Scope, **settings: Any) -> dict[str, str]:
        """The headers of a new key."""
        who = {"principal": "alice", **settings}
        name, principal = who.pop("name", "test"), who.pop("principal")
        _, text = self.store.api_keys.create(name, principal, scopes, by=MAKER, **who)
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

    def round_trips(self, ask: Callable[[], Any]) -> int:
        """Count the round trips of *ask* to Redis.

        The first time, it also reads the agents, and sends scripts.
        """
        here, count = threading.get_ident(), 0
        self.lab.stay_alive()

        def count_calls(real: Any) -> Any:
            def execute(*args: Any, **options: Any) -> Any:
                nonlocal count
                count += threading.get_ident() == here
                return real(*args, **options)

            return execute

        alone, together = redis.Redis.execute_command, redis.client.Pipeline.execute
        with (
            mock.patch.object(redis.Redis, "execute_command", count_calls(alone)),
            mock.patch.object(redis.client.Pipeline, "execute", count_calls(together)),
            mock.patch.object(services, "_FRESH", 3600),
        ):
            ask()
        return count

    def while_it_waits(self, ask: Callable[[], Any]) -> Any:
        """The answer of *ask*, to which workers come only when it has begun to wait."""
        self.dispatcher.held = True
        with ThreadPoolExecutor(1) as pool:
            reply = pool.submit(ask)
            wait_until(lambda: self.lab.dispatcher.hints)
            self.lab.deliver()
            return reply.result(120)

    def waiting(
        self,
        text: str = "news",
        *,
        action: str = "desk:publish",
        ttl: float = 3600,
        risk: Level | None = "low",
        concurrency: int | None = None,
        **policy: Any,
    ) -> str:
        """A new pending approval of the agent `desk`, which takes what *policy* says; its id.

        It is the only one of its millisecond, so that tests know which is older.
        """
        time.sleep(0.001)
        params: JsonObject = {"text": text}
        decision = Decision(action=action, params=params, rationale="test", confidence=1.0)
        proposal = Proposal(
            decision=decision,
            action_id=action,
            params=params,
            loop_iteration=1,
            risk=risk,
            target=text if action == "desk:publish" else "",
            concurrency=concurrency,
            required=ApprovalPolicy(**policy),
        )
        return self.lab.store.approvals.enqueue(proposal, Retention(ttl=ttl))


def make_lab(server: Any) -> Lab:
    """An agent that sees, understands and acts."""
    parts = [
        sees("cpu", seen("cpu"), seen("memory")),
        reads("load", "the cpu is busy"),
        chooses(choice("p:do")),
        Recorder().action(),
    ]
    return Lab(agent(*parts), client=client_of(server))


class Note(BaseModel):
    """Params of the actions that write."""

    text: str = Field(min_length=1)


class Desk(Plugin):
    """Writes notes: into `done`, where tests see what has happened."""

    id = "desk"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.done: list[str] = []

    @action()
    def write(self, params: Note) -> str:
        """Write a note."""
        self.done.append(f"write {params.text}")
        return f"wrote {params.text}"

    @write.dry_run
    def would_write(self, params: Note) -> str:
        """Tell what would be written."""
        return f"would write {params.text}"

    @write.rollback
    def wipe(self, params: Note, result: ActionResult) -> str:
        """Wipe the note away."""
        self.done.append(f"wipe {params.text}")
        return f"wiped {params.text}"

    @action(autonomy="approval-required", target="text")
    def publish(self, params: Note) -> str:
        """Show a note to everybody."""
        self.done.append(f"publish {params.text}")
        return f"published {params.text}"

    @action()
    def tear(self) -> None:
        """Fail."""
        self.done.append("tear")
        raise RuntimeError("the paper is too strong")

    @action(queue="printer")
    def print_it(self) -> None:
        """Needs a worker that is not there."""

    @endpoint("GET", "/")
    def index(self, request: EndpointRequest) -> list[str]:
        """List what was done."""
        return self.done

    @endpoint("GET", "/notes/{name}")
    def note(self, request: EndpointRequest) -> dict[str, Any]:
        """Show what was asked."""
        return request.to_wire()

    @endpoint("PUT", "/notes/{name}")
    def replace(self, request: EndpointRequest) -> EndpointReply:
        """Answer with a status of its own."""
        self.done.append(f"replace {request.path['name']}")
        return EndpointReply(status=201, body={"sent": request.body, "by": request.actor.principal})

    @endpoint("DELETE", "/notes/{name}")
    def remove(self, request: EndpointRequest) -> EndpointReply:
        """Answer without a body."""
        return EndpointReply(status=204)

    @endpoint("PATCH", "/notes/{name}")
    def change(self, request: EndpointRequest) -> None:
        """Fail."""
        raise RuntimeError("the paper is too strong")

    @endpoint("POST", "/{verb}/{text}")
    def perform(self, request: EndpointRequest) -> Perform:
        """Have an action taken."""
        return Perform(f"desk:{request.path['verb']}", {"text": request.path["text"]})

    @endpoint("GET", "/printed", queue="printer")
    def printed(self) -> None:
        """Needs a worker that is not there."""


def make_desk(server: Any, mode: Mode = "manual") -> tuple[Lab, Desk]:
    """An agent that does what it is told, and its plugin."""
    desk = Desk()
    redis = client_of(server)
    return Lab(Agent("desk", plugins=[desk], mode=mode), client=redis), desk
