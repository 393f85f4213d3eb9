"""A model that follows a script instead of a real one, so that this example needs none.

    python model.py 8767

It asks for the tools that a person would use here, one after the other, and draws its conclusions
from what they say: every path, number and process in its answers comes from there. It knows this
shop and nothing else. When nobody has touched the file `--watched` for a minute, it ends by itself.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boyd.testing.model_server import Received, Reply, ScriptedModel, call, calls, say

#: Seconds without anybody who watches, after which it ends.
IDLE = 60.0

_STEERING = re.compile(r"<steering>.*?</steering>", re.DOTALL)
_TO_FIX = re.compile(
    r"\b(fix|repair|put (it|this) right|remove|do it|go ahead|yes)\b", re.IGNORECASE
)
_WAITS = re.compile(r"waits for (\S+), which process (\d+) holds")


@dataclass(frozen=True)
class Result:
    """The output of a tool, with the `status` that Boyd reports."""

    tool: str
    arguments: dict[str, Any]
    status: str
    output: str

    @property
    def value(self) -> Any:
        """The output of a tool that answers in JSON; None: it has failed."""
        return json.loads(self.output) if self.status == "succeeded" else None


@dataclass(frozen=True)
class Heard:
    """The knowledge of the model: the last question, and the results since then.

    Attributes:
        system: what it was told first.
        question: of a person or an agent.
        results: in order.
        tools: those it may use; none when it has to answer now.
    """

    system: str = ""
    question: str = ""
    results: list[Result] = field(default_factory=list)
    tools: frozenset[str] = frozenset()

    @classmethod
    def of(cls, body: dict[str, Any]) -> Heard:
        """The knowledge in a chat completions request."""
        messages = body["messages"]
        system = "\n".join(one["content"] for one in messages if one["role"] == "system")
        asked = [at for at, one in enumerate(messages) if _question(one)]
        last = asked[-1] if asked else 0
        return cls(
            system=system,
            question=_question(messages[last]),
            results=list(_results(messages[last:])),
            tools=frozenset(one["function"]["name"] for one in body.get("tools", [])),
        )

    @property
    def may_fix(self) -> bool:
        """True if a fix is wanted and the tool for it is offered."""
        wanted = _TO_FIX.search(f"{self.system}\n{self.question}")
        return bool(wanted) and "remove_lock" in self.tools

    def first(self, tool: str) -> Result | None:
        """The first result of a tool."""
        return next((one for one in self.results if one.tool == tool), None)

    def last(self, tool: str, **arguments: Any) -> Result | None:
        """The last result of a tool that was called with those *arguments*, among others."""
        fitting = (
            one
            for one in reversed(self.results)
            if one.tool == tool and arguments.items() <= one.arguments.items()
        )
        return next(fitting, None)


def _question(message: dict[str, Any]) -> str:
    """The question in a message; empty if Boyd alone has written it."""
    return _STEERING.sub("", message["content"] or "").strip() if message["role"] == "user" else ""


def _results(messages: list[dict[str, Any]]) -> Iterator[Result]:
    asked = {one["id"]: one["function"] for said in messages for one in said.get("tool_calls", ())}
    for one in messages:
        if one["role"] == "tool":
            function = asked[one["tool_call_id"]]
            told = json.loads(one["content"])
            arguments = json.loads(function["arguments"] or "{}")
            yield Result(function["name"], arguments, told["status"], told.get("output", ""))


@dataclass(frozen=True)
class Case:
    """The conclusions from the results."""

    heard: Heard

    @property
    def health(self) -> dict[str, Any] | None:
        """The last answer of the shop."""
        found = self.heard.last("health")
        return (found.value or {"status": None, "said": found.output}) if found else None

    @property
    def is_well(self) -> bool:
        """True if that answer was good."""
        return self.health is not None and self.health["status"] == 200

    @property
    def shop_log(self) -> str | None:
        """The last line of the shop's log."""
        return _last_line(self.heard.last("read_file", path="shop.log"))

    @property
    def courier_log(self) -> str | None:
        """The last line of the courier's log."""
        return _last_line(self.heard.last("read_file", path="courier.log"))

    @property
    def lock(self) -> tuple[str, int] | None:
        """The lock that the courier waits for, and the process that it names."""
        waits = _WAITS.search(self.courier_log or "")
        return (waits[1], int(waits[2])) if waits else None

    @property
    def couriers(self) -> list[dict[str, Any]] | None:
        """The processes that want or have the lock."""
        found = self.heard.last("processes", matching=self.lock[0]) if self.lock else None
        return found.value if found else None

    @property
    def holder(self) -> list[dict[str, Any]] | None:
        """The process that the lock names: none when it is gone."""
        found = self.heard.last("processes", pid=self.lock[1]) if self.lock else None
        if found is None or found.value is None:
            return None
        return [one for one in found.value if one["status"] != "zombie"]

    @property
    def is_stale(self) -> bool:
        """True if the lock has no owner."""
        return self.holder == []

    @property
    def removal(self) -> Result | None:
        """The result of removing the lock."""
        return self.heard.last("remove_lock")

    @property
    def cause(self) -> str | None:
        """The root cause, if known."""
        if not self.lock or not self.is_stale:
            return None
        path, pid = self.lock
        return (
            f"{Path(path).name} was left behind by process {pid}, which is gone. The courier waits "
            "for that lock for ever and fetches no orders, so the outbox has filled up."
        )


def reply(received: Received) -> Reply:
    """The next message of the model."""
    heard = Heard.of(received.body)
    case = Case(heard)
    # The server counts the real tokens.
    return (_next(case) or _answer(case)).patched({"usage": None})


def _next(case: Case) -> Reply | None:
    """The next tool call; None: it is time to answer."""
    heard = case.heard
    if "health" not in heard.tools:
        return None
    if case.health is None:
        return call("health", text="I look at the shop first.")
    if case.removal is not None:
        return _see(case, case.removal)
    return None if case.is_well else _look(case) or _fix(case)


def _look(case: Case) -> Reply | None:
    status = case.health and case.health["status"]
    if case.shop_log is None:
        text = f"The shop answers {status}. Its log may say why."
        return call("read_file", {"path": "shop.log", "lines": 5}, text=text)
    if case.courier_log is None:
        text = "Nobody fetches the orders. What does the courier do?"
        return call("read_file", {"path": "courier.log", "lines": 5}, text=text)
    if case.lock and case.couriers is None:
        lock, pid = case.lock
        text = f"The courier waits for a lock of process {pid}. Who are they?"
        return calls(("processes", {"matching": lock}), ("processes", {"pid": pid}), text=text)
    return None


def _fix(case: Case) -> Reply | None:
    if not case.lock or not case.cause or not case.heard.may_fix:
        return None
    lock, pid = case.lock
    reason = f"The courier waits for this lock; process {pid}, which it names, is gone"
    text = f"There is no process {pid}: its lock is stale. I ask whether I may remove it."
    return call("remove_lock", {"path": lock, "pid": pid, "reason": reason}, text=text)


def _see(case: Case, removal: Result) -> Reply | None:
    """Look once more at the shop, whatever became of the removal; patiently if it was done."""
    done = removal.status == "succeeded"
    patience = 20 if done else 1
    if case.heard.last("health", patience=patience) is not None:
        return None
    text = f"{removal.output}. Has it helped?" if done else "That was not done. How is the shop?"
    return call("health", {"patience": patience}, text=text)


def _answer(case: Case) -> Reply:
    """The answer, in the form that was asked for."""
    found: dict[str, Any] = {
        "findings": list(_findings(case)),
        "root_cause": case.cause,
        "impact": _impact(case),
        "affected": ["shop", "courier"] if case.cause else [],
        "recommended_action": _advice(case),
        "confidence": 0.95 if case.cause else 0.3,
    }
    if "answer" in case.heard.tools:
        return call("answer", found)
    facts = "\n".join(f"- {finding}" for finding in _findings(case))
    cause = case.cause or ("It is well." if case.is_well else "I have not found the cause.")
    parts = [cause, facts, _impact(case), _advice(case)]
    return say("\n\n".join(part for part in parts if part))


def _findings(case: Case) -> Iterator[str]:
    first = case.heard.first("health")
    if first and first.value:
        yield f"The shop answered {first.value['status']}: {first.value['said']} (health)"
    for one in case.couriers or ():
        yield f"The courier, process {one['pid']}, has run since {one['started']} (processes)"
    if case.courier_log and not case.is_well:
        yield f"Its log ends with: {case.courier_log} (courier.log)"
    if case.lock and case.is_stale:
        yield f"It waits for a lock of process {case.lock[1]}, and there is none (processes)"
    if case.removal and case.health:
        yield f"{case.removal.output} (remove_lock, {case.removal.status})"
        yield f"The shop answers {case.health['status']}: {case.health['said']} (health)"


def _impact(case: Case) -> str | None:
    if case.removal and case.is_well:
        return "Customers got 503 for a while; now orders are taken again."
    return None if case.is_well else "Customers get 503: the shop takes no orders."


def _advice(case: Case) -> str | None:
    if case.removal and case.is_well:
        return "Let the courier see by itself whether the holder of the lock lives."
    return f"Remove {case.lock[0]}." if case.lock and case.cause else None


def _last_line(result: Result | None) -> str | None:
    if result is None:
        return None
    return (result.output.strip().splitlines() or [""])[-1]


def is_watched(file: Path | None) -> bool:
    """True if *file* was touched recently."""
    try:
        return file is None or time.time() - file.stat().st_mtime < IDLE
    except FileNotFoundError:
        return False


def main() -> None:
    """Answer until stopped or forgotten."""
    parser = argparse.ArgumentParser(description="A model that follows a script.")
    parser.add_argument("port", type=int, nargs="?", default=8767)
    parser.add_argument("--watched", type=Path)
    given = parser.parse_args()
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    signal.signal(signal.SIGINT, lambda *_: stopped.set())
    with ScriptedModel([reply], forever=True, port=given.port) as model:
        print(f"answers at {model.url}/v1", flush=True)
        while is_watched(given.watched) and not stopped.wait(1):
            pass


if __name__ == "__main__":
    main()
