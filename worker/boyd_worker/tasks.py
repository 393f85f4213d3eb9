"""The Celery tasks: each reads the ids in its message and takes one step of the engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from celery import Celery
from celery.exceptions import Ignore

from boyd.broker import EXECUTE, FOLLOWS, TASKS
from boyd.engine import Engine, Executions
from boyd.errors import StoreError
from boyd.models import Phase

log = logging.getLogger("boyd.worker")

Step = Callable[..., bool | None]

_STEPS: dict[Phase, Callable[[Engine], Step]] = {
    "start": lambda engine: engine.start,
    "observe": lambda engine: engine.observe,
    "orient": lambda engine: engine.orient,
    "decide": lambda engine: engine.decide,
    "act": lambda engine: engine.act,
    "complete": lambda engine: engine.complete,
}


def register(app: Celery, engines: Mapping[str, Engine]) -> None:
    """Register the tasks of those *engines*, by agent id, on *app*."""
    for phase, name in TASKS.items():
        app.task(_task(phase, engines), name=name, shared=False)
    executions = {agent_id: Executions(engine) for agent_id, engine in engines.items()}
    app.task(_execution(executions), name=EXECUTE, shared=False)


def _task(phase: Phase, engines: Mapping[str, Engine]) -> Callable[..., None]:
    step = _STEPS[phase]
    chained = phase in FOLLOWS

    def run(*message: Any) -> None:
        try:
            agent_id, ids = _checked(message)
            if agent_id not in engines:
                raise ValueError(f"agent {agent_id!r} does not run on this worker")
        except ValueError as error:
            log.error("a message was ignored: %s", error)
            raise Ignore from None
        try:
            goes_on = step(engines[agent_id])(*ids)
        except StoreError as error:
            log.warning("a step was left to be sent again: %s", error, extra={"agent": agent_id})
            goes_on = False
        if chained and not goes_on:
            raise Ignore  # ends the chain: there was nothing to do, or the iteration has failed

    return run


def _execution(executions: Mapping[str, Executions]) -> Callable[..., None]:
    def run(agent_id: Any = None, approval_id: Any = None, attempt: Any = None) -> None:
        ids = isinstance(approval_id, str) and _is_number(attempt)
        if not ids or agent_id not in executions:
            log.error("a message was ignored: it names no approval of an agent that runs here")
            return
        try:
            executions[agent_id].execute(approval_id, attempt)
        except StoreError as error:
            log.warning("an execution was left to be sent again: %s", error)

    return run


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 < value < 2**53


def _checked(message: tuple[Any, ...]) -> tuple[str, tuple[int, ...]]:
    """What a message says; it may come from anybody who can write to the broker.

    Raises:
        ValueError: it is not an agent's id and one to three numbers.
    """
    if not 2 <= len(message) <= 4 or not isinstance(message[0], str):
        raise ValueError("it names no agent and iteration")
    if not all(map(_is_number, message[1:])):
        raise ValueError("its ids are not numbers")
    return message[0], message[1:]
