"""Reads and changes goals through the endpoints of the plugin `goals`, which workers answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from pydantic import ValidationError

from boyd.models import EndpointReply, Model
from boyd.models.base import Json
from boyd.text import queues
from boyd_api.console.page_request import PageRequest
from boyd_api.http.problems import HttpProblem
from boyd_api.routes import plugin_routes

_M = TypeVar("_M", bound=Model)

#: The name of the plugin.
PLUGIN = "goals"
#: Seconds that a page waits for workers, and seconds that a change does.
_READ = 3.0
_CHANGE = 10.0


class GoalReader:
    """The endpoints of one agent; all questions of a page wait for workers at the same time."""

    def __init__(self, page: PageRequest) -> None:
        self._ctx = page.ctx
        self._deadline = time.monotonic() + _READ

    @property
    def is_used(self) -> bool:
        """True if the agent uses the plugin."""
        return any(one.plugin == PLUGIN for one in self._ctx.agent.entry.catalog.endpoints)

    @property
    def unserved(self) -> str:
        """The queue that no worker consumes, so that nobody answers; empty if one does."""
        served = self._ctx.services.store.fleet.of(self._ctx.agent.entry.id).serving(queues.ACT)
        return "" if served else queues.ACT

    def ask(self, path: str, model: type[_M], **query: str) -> Callable[[], _M]:
        """Ask for *path* now; the function returned waits for the reply.

        It raises `HttpProblem` if there is none in time, or if it is a refusal.
        """
        # Each question is a call of its own, also in the request of a form that has an id.
        ctx = replace(self._ctx, idempotency_key=None)
        found = plugin_routes.find(ctx, PLUGIN, "GET", path)
        made = plugin_routes.begin(ctx, found, query)

        def reply() -> _M:
            left = max(0.0, self._deadline - time.monotonic())
            return _read(model, plugin_routes.await_reply(ctx, made, left))

        return reply

    def change(self, path: str, model: type[_M], body: Json) -> _M:
        """Change something, once per form. Raises `HttpProblem` if it is refused."""
        found = plugin_routes.find(self._ctx, PLUGIN, "POST", path)
        made = plugin_routes.begin(self._ctx, found, {}, body)
        return _read(model, plugin_routes.await_reply(self._ctx, made, _CHANGE))


def _read(model: type[_M], reply: EndpointReply) -> _M:
    if reply.status >= 400:
        why = reply.body.get("error") if isinstance(reply.body, dict) else None
        raise HttpProblem("not-found" if reply.status == 404 else "bad-request", str(why))
    try:
        return model.model_validate(reply.body)
    except ValidationError as error:
        why = f"the worker's answer is not as expected: {error.error_count()} fields differ"
        raise HttpProblem("endpoint-failed", why) from None
