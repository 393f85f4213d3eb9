"""The Celery tasks: each reads the ids in its message and takes one step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from celery import Celery
from celery.exceptions import Ignore

from boyd.errors import StoreError
from boyd.messaging.celery_app import FOLLOWS, JOB, TASKS
from boyd.models import Phase
from boyd.runtime import Engine, IterationSteps, JobRunner, jobs_of

log = logging.getLogger("boyd.worker")

_STEPS: dict[Phase, Callable[..., bool | None]] = {
    "start": IterationSteps.start,
    "observe": IterationSteps.observe,
    "orient": IterationSteps.orient,
    "decide": IterationSteps.decide,
    "act": IterationSteps.act,
    "complete": IterationSteps.complete,
}


def register(app: Celery, engines: Mapping[str, Engine]) -> None:
    """Register the tasks of those *engines*, by agent id, on *app*."""
    steps = {agent_id: IterationSteps(engine) for agent_id, engine in engines.items()}
    for phase, name in TASKS.items():
        app.task(_task(phase, steps), name=name, shared=False)
    jobs = {agent_id: jobs_of(engine) for agent_id, engine in engines.items()}
    app.task(_job(jobs), name=JOB, shared=False)


def _task(phase: Phase, steps: Mapping[str, IterationSteps]) -> Callable[..., None]:
    step = _STEPS[phase]
    chained = phase in FOLLOWS

    def run(*message: Any) -> None:
        try:
            agent_id, ids = _checked(message)
            if agent_id not in steps:
                raise ValueError(f"agent {agent_id!r} does not run on this worker")
        except ValueError as error:
            log.error("a message was ignored: %s", error)
            raise Ignore from None
        try:
            goes_on = step(steps[agent_id], *ids)
        except StoreError as error:
            log.warning("a step was left to be sent again: %s", error, extra={"agent": agent_id})
            goes_on = False
        if chained and not goes_on:
            raise Ignore  # ends the chain: there was nothing to do, or the iteration has failed

    return run


def _job(jobs: Mapping[str, JobRunner]) -> Callable[..., None]:
    def run(agent_id: Any = None, name: Any = None, attempt: Any = None) -> None:
        named = isinstance(name, str) and _is_number(attempt)
        if not named or agent_id not in jobs:
            log.error("a message was ignored: it names no job of an agent that runs here")
            return
        try:
            jobs[agent_id].execute(name, attempt)
        except StoreError as error:
            log.warning("a job was left to be sent again: %s", error)

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
