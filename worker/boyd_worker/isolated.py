"""Observers in a process of their own: killed when their time is up, whatever they do (L11).

The parent sends what to run as JSON on standard input and reads the outcome from a pipe; what the
observer prints goes to the log.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from boyd.embedded.death import follow_parent
from boyd.errors import Overrun
from boyd.loop.bounded import overrun
from boyd.loop.observe import Isolate, dump, load, validated
from boyd.settings import Settings


class Isolation:
    """Starts the processes."""

    def __init__(self, settings: Settings, worker: str) -> None:
        self._worker = worker
        # An observer needs no secret of ours.
        self._settings = settings.model_dump_json(exclude={"audit_key", "callbacks"})

    def of(self, agent_id: str) -> Isolate:
        """What runs isolated observers of one agent."""

        def run(observer: str, shard: Any, iteration: int | None, timeout: float) -> list[Any]:
            request = {
                "settings": self._settings,
                "worker": self._worker,
                "agent": agent_id,
                "observer": observer,
                "shard": shard,
                "iteration": iteration,
            }
            return _ask(json.dumps(request), timeout)

        return run


def _ask(request: str, timeout: float) -> list[Any]:
    """Run the request in a new process.

    Raises:
        Overrun: it took longer than *timeout* seconds; it was killed with all it started.
        RuntimeError: the observer failed, or its process died.
    """
    reading, writing = os.pipe()
    process = subprocess.Popen(  # noqa: S603 - our own module, no shell
        [sys.executable, "-m", "boyd_worker.isolated", str(writing), str(os.getpid())],
        stdin=subprocess.PIPE,
        pass_fds=[writing],
        start_new_session=True,
        text=True,
    )
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        try:
            answer = _converse(process, request, pipe.read, timeout)
        finally:
            _kill(process)
    if not answer:
        raise RuntimeError(f"its process ended with status {process.returncode}")
    outcome = json.loads(answer)
    if "error" in outcome:
        raise RuntimeError(outcome["error"])
    return list(load(outcome["observations"]))


def _converse(
    process: subprocess.Popen[str], request: str, read: Callable[[], str], timeout: float
) -> str:
    answer: list[str] = []
    # The pipe is read while the process runs, or a large answer would block it.
    reader = threading.Thread(target=lambda: answer.append(read()), daemon=True)
    reader.start()
    try:
        process.communicate(request, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise overrun(timeout) from None
    reader.join(timeout=1)
    return answer[0] if answer else ""


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main() -> None:
    """Run one observer and write its outcome to a pipe; arguments: the pipe, the parent's pid."""
    follow_parent(signal.SIGKILL, int(sys.argv[2]))
    request = json.load(sys.stdin)
    try:
        outcome = {"observations": _observe(request)}
    except (Exception, Overrun) as error:  # noqa: BLE001 - the parent reports it
        outcome = {"error": f"{type(error).__name__}: {error}"}
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as pipe:
        json.dump(outcome, pipe)


def _observe(request: dict[str, Any]) -> str:
    from boyd.agent import load_agents
    from boyd.plugin import Context
    from boyd.store import Store, connect

    settings = Settings.model_validate_json(request["settings"])
    agent = load_agents(settings.agents)[request["agent"]]
    assert settings.redis_url is not None
    store = Store(connect(settings.redis_url)).agent(agent.id)
    observer = agent.host.observers[request["observer"]]
    plugin = agent.host.plugins[observer.plugin_id]
    ctx = Context(
        agent.info,
        plugin.id,
        store.state(plugin.id),
        request["iteration"],
        store.clock.now,
        host=settings.worker.host,
        worker=request["worker"],
    )
    plugin.init(ctx)
    return dump(validated(observer.call("observe", ctx=ctx, shard=request["shard"])))


if __name__ == "__main__":
    main()
