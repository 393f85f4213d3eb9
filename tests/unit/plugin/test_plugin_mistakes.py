"""Every cell of the table "What becomes of mistakes" in docs/plugins.md is what happens."""

from __future__ import annotations

import inspect
import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from boyd import Agent, Decision
from boyd.errors import PluginError
from boyd.models import CallRequest, EndpointReply, EndpointRequest, LoopResult
from boyd.models.investigation import Result
from boyd.phases import phase_context
from boyd.plugin import Action, Endpoint, Observer, Orienter, Strategy, Tool
from boyd.plugin.plugin_boundary import own_copy
from boyd.testing import TESTER, Lab
from boyd.testing.model_server import call as tool_call
from boyd.testing.model_server import say
from kit import agent, assessed, choice, plugin, reads, seen, sees
from model_kit import scene
from odd_values import Elusive, disguise

PAGE = Path(__file__).parents[3] / "docs" / "plugins.md"
SECTION = PAGE.read_text("utf-8").split("\n## What becomes of mistakes\n")[1].split("\n## ")[0]


def rows() -> Iterator[list[str]]:
    """The rows of the first table: cells without their marks."""
    table = SECTION.split("\n\n")[1]
    for line in table.strip().splitlines():
        yield [cell.strip() for cell in line.strip("|").split("|")]


HEAD, _, *ROWS = list(rows())
CELLS = [(row[0], kind, cell) for row in ROWS for kind, cell in zip(HEAD[1:], row[1:], strict=True)]

#: What a component or hook gets, by the name of the argument.
Given = dict[str, Any]
#: A value that JSON cannot hold.
NO_JSON: Any = {"a": {1}}
#: A number that no reader of JSON takes, and a value without end.
HUGE: Any = {"a": 10**5000}
ENDLESS: Any = {}
ENDLESS["a"] = ENDLESS


@dataclass
class Scenery:
    """The needs and traces of the functions of a test."""

    hanging: threading.Event = field(default_factory=threading.Event)
    calls: int = 0
    left: list[subprocess.Popen[bytes]] = field(default_factory=list)


@pytest.fixture
def scenery() -> Iterator[Scenery]:
    """Nobody can press Ctrl-C, as in a process of workers; what is left behind is ended."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    new_scenery = Scenery()
    yield new_scenery
    new_scenery.hanging.set()
    for process in new_scenery.left:
        process.kill()
        process.wait()
    signal.signal(signal.SIGINT, before)


class Panic(BaseException):
    """As an extension in Rust raises it."""


class Mute(Exception):
    """Its text needs what it was not given."""

    def __str__(self) -> str:
        raise AttributeError("status")


class MuteValue(ValueError):
    """Its text is none."""

    def __str__(self) -> str:
        return None  # type: ignore[return-value]


class MuteExit(Exception):
    """Its text ends the program."""

    def __str__(self) -> str:
        sys.exit(4)


async def coroutine() -> None:
    """Runs only when somebody awaits it."""


#: What a function may do with what it gets, and what it returns otherwise.
Body = Callable[[Given, Any], Any]


def raising(error: BaseException) -> Body:
    """A function that raises it."""

    def body(arguments: Given, good: Any) -> Any:
        raise error

    return body


def returning(value: Any) -> Body:
    """A function that returns it."""
    return lambda arguments, good: value


def spoil(value: Any) -> None:
    """Change it in place, as deep as it goes."""
    if isinstance(value, BaseModel):
        spoil(value.__dict__)
    elif isinstance(value, dict | list):
        for item in list(value.values() if isinstance(value, dict) else value):
            spoil(item)
        value.clear()


def spoil_all(arguments: Given, good: Any) -> Any:
    """Change all that was given."""
    spoil(arguments)
    return good


def invalid(arguments: Given, good: Any) -> Any:
    """A model built without validation, or changed afterwards."""
    if isinstance(good, list):
        return [invalid(arguments, item) for item in good]
    if isinstance(good, str | dict) and "priority" not in good:
        return EndpointReply.model_construct(status=200, body=NO_JSON)
    if isinstance(good, dict):
        return {"assessments": [invalid(arguments, assessed())]}
    copy = good.model_copy()
    copy.__dict__["params" if isinstance(good, Decision) else "data"] = NO_JSON
    return copy


def hollow(arguments: Given, good: Any) -> Any:
    """A model of which every field is wrong."""
    if isinstance(good, list):
        return [hollow(arguments, item) for item in good]
    if isinstance(good, str | dict) and "priority" not in good:
        return EndpointReply.model_construct(status="ok")  # type: ignore[arg-type]
    if isinstance(good, dict):
        return {"assessments": [hollow(arguments, assessed())]}
    return type(good).model_construct(action=5, confidence=7, source=5)


def bodies(name: str, scenery: Scenery) -> list[Body]:
    """The variants of a misbehaviour."""

    def leave(arguments: Given, good: Any) -> Any:
        scenery.left.append(subprocess.Popen(["sleep", "600"], close_fds=False))
        return good

    def close(arguments: Given, good: Any) -> Any:
        sys.stdout.close()
        return good

    def fork(arguments: Given, good: Any, error: Exception | None = None) -> Any:
        child = os.fork()
        if child:
            # 1: it ended where the function did. Otherwise its alarm ends it.
            assert os.waitpid(child, 0)[1] == 1 << 8
        else:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(2)
            os.closerange(3, 4096)  # those of pytest, which it must not use
            if error:
                raise error
        return good

    def fork_badly(arguments: Given, good: Any) -> Any:
        return fork(arguments, good, FileNotFoundError("no such program"))

    def hang(arguments: Given, good: Any) -> Any:
        scenery.hanging.wait(120)

    bodies_by_name: dict[str, list[Body]] = {
        "is a coroutine": [],
        "is a generator": [],
        "returns a coroutine": [lambda arguments, good: coroutine()],
        "raises a `BaseException`": [raising(Panic("p")), raising(KeyboardInterrupt())],
        "raises an exception without a text": [
            raising(Mute()),
            raising(MuteValue()),
            raising(MuteExit()),
        ],
        "calls `sys.exit`": [
            lambda arguments, good: sys.exit(2),
            lambda arguments, good: sys.exit(),
        ],
        "hangs": [hang],
        "forks, and the child returns or raises": [fork, fork_badly],
        "leaves a process with its pipes": [leave],
        "closes its standard output": [close],
        "changes what it gets in place": [spoil_all],
        "returns values whose methods raise or never end": [lambda arguments, good: disguise(good)],
        "returns what raises when it is read": [
            lambda arguments, good: Elusive(),
            lambda arguments, good: [Elusive()],
        ],
        "returns what is not JSON": list(map(returning, ({1, 2}, NO_JSON, HUGE, ENDLESS))),
        "returns a model that is invalid": [invalid, hollow],
    }
    return bodies_by_name[name]


def functions(name: str, scenery: Scenery, good: Any, *takes: str) -> list[Callable[..., Any]]:
    """Functions that misbehave like that, and take those arguments."""

    async def await_good(**arguments: Any) -> Any:
        return good

    def generator(**arguments: Any) -> Iterator[Any]:
        yield from good

    def plain(body: Body) -> Callable[..., Any]:
        def function(**arguments: Any) -> Any:
            scenery.calls += 1
            return body(arguments, own_copy(good))

        return function

    special: dict[str, list[Callable[..., Any]]] = {
        "is a coroutine": [await_good],
        "is a generator": [generator],
    }
    functions_made = special.get(name) or [plain(body) for body in bodies(name, scenery)]
    parameters = [
        inspect.Parameter(parameter, inspect.Parameter.KEYWORD_ONLY) for parameter in takes
    ]
    for variant in functions_made:
        variant.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return functions_made


EYES = seen("eyes", data={"n": {"x": 1}})


def others() -> list[Any]:
    """Components that do what they should."""
    return [
        sees("eyes", EYES),
        reads("brain", "well", data={"n": {"x": 1}}),
        Strategy(name="last", decide=lambda: choice("p:safe", params={"n": {"x": 1}})),
        Action(name="safe", execute=lambda: "safe"),
    ]


def limit(name: str) -> dict[str, float]:
    """A short time limit for what hangs, so that nothing else can exceed it."""
    return {"timeout": 0.1} if name == "hangs" else {}


def iteration(odd_agent: Agent) -> LoopResult:
    """An iteration, which succeeds, and in which others did as they should."""
    result = Lab(odd_agent).run()
    assert result.success
    assert "eyes" in [observation.source for observation in result.observations]
    assert (
        next(
            observation for observation in result.observations if observation.source == "eyes"
        ).data
        == EYES.data
    )
    assert result.situation is not None
    assert result.situation.evidence("p:brain") == {"n": {"x": 1}}
    return result


def safely(result: LoopResult) -> bool:
    """True if the others decided and acted with the parameters that they chose."""
    assert result.decision is not None
    acted = [action_result.output for action_result in result.action_results]
    return result.decision.params == {"n": {"x": 1}} and acted == ["safe"]


def of_observer(name: str, function: Callable[..., Any]) -> str:
    """The outcome of an observer."""
    odd = Observer(name="odd", observe=function, partition=lambda: [{"a": {}}], **limit(name))
    result = iteration(agent(odd, *others()))
    assert safely(result)
    if [observer_error.id for observer_error in result.observer_errors] == ["p:odd"]:
        return "recorded"
    return "counts" if result.observations[0].source == "odd" else "lost"


def of_orienter(name: str, function: Callable[..., Any]) -> str:
    """The outcome of an orienter."""
    result = iteration(agent(Orienter(name="odd", orient=function, **limit(name)), *others()))
    assert safely(result)
    assert result.situation is not None
    if [problem.id for problem in result.problems] == ["p:odd"]:
        return "recorded"
    return "counts" if result.situation.assessments[0].findings == ["odd"] else "lost"


def of_strategy(name: str, function: Callable[..., Any]) -> str:
    """The outcome of a strategy."""
    result = iteration(agent(Strategy(name="odd", decide=function, **limit(name)), *others()))
    assert result.decision is not None
    if result.decision.is_no_op and "p:odd" in result.decision.rationale:
        return "no-op"
    return "counts" if safely(result) and result.decision.rationale == "odd" else "lost"


def of_action(name: str, function: Callable[..., Any]) -> str:
    """The outcome of an action."""
    decision = choice("p:odd", params={"n": {"x": 1}})
    first = Strategy(name="first", decide=lambda: decision)
    result = iteration(agent(first, Action(name="odd", execute=function, **limit(name)), *others()))
    [acted] = result.action_results
    assert result.decision is not None
    assert result.decision.params == {"n": {"x": 1}}
    if acted.success:
        return "counts" if acted.output == "odd" else "lost"
    assert acted.error
    return "unknown" if acted.unknown else "failed"


def of_tool(name: str, function: Callable[..., Any]) -> str:
    """The outcome of a tool, of which a model makes use."""
    script = [tool_call("odd", {"n": {"x": 1}}), say("All in all it was the disk.")]
    tool = Tool(name="odd", run=function, description="Odd.", **limit(name))
    with scene(*script, plugin=plugin(tool, *others())) as going_on:
        investigation = going_on.ask()
        [observation] = [entry.observation for entry in going_on.entries(Result)]
    assert investigation.text == "All in all it was the disk."
    if observation.status == "succeeded":
        return "counts" if observation.output == "odd" else "lost"
    return "told"


def of_endpoint(name: str, function: Callable[..., Any]) -> str:
    """The outcome of an endpoint."""
    odd = Endpoint(name="odd", path="/odd", handle=function, **limit(name))
    lab = Lab(agent(odd, *others()))
    endpoint_request = EndpointRequest(method="GET", actor=TESTER, query={"a": "b"})
    request = CallRequest(kind="endpoint", action="p:odd", actor=TESTER, endpoint=endpoint_request)
    id = lab.launcher.call(request, None, None)
    lab.deliver()
    record = lab.store.calls.get(id)
    assert record is not None
    assert record.reply is not None
    assert record.endpoint == endpoint_request
    if record.reply.status == 200:
        return "counts" if record.reply.body == {"odd": 1} else "lost"
    return str(record.reply.status)


def of_hook(name: str, function: Callable[..., Any]) -> str:
    """The outcome of a hook."""
    hooks: dict[str, Any] = {"on_orient": function}
    odd_agent = Agent("test", plugins=[plugin(id="odd", **hooks), plugin(*others())])
    result = iteration(odd_agent)
    assert safely(result)
    assert result.situation is not None
    if [problem.id for problem in result.problems] == ["odd.on_orient"]:
        return "recorded" if result.situation.priority == "low" else "lost"
    return "counts" if result.situation.priority == "high" else "lost"


@dataclass(frozen=True)
class Kind:
    """A kind of component: its outcome, what it returns, and what it takes."""

    outcome: Callable[[str, Callable[..., Any]], str]
    good: Any
    takes: tuple[str, ...]


KINDS = {
    "observer": Kind(of_observer, [seen("odd")], ("shard",)),
    "orienter": Kind(of_orienter, assessed("odd"), ("observations",)),
    "strategy": Kind(
        of_strategy,
        choice("p:safe", params={"n": {"x": 1}}, rationale="odd"),
        ("situation",),
    ),
    "action": Kind(of_action, "odd", ("params",)),
    "tool": Kind(of_tool, "odd", ("params",)),
    "endpoint": Kind(of_endpoint, {"odd": 1}, ("request",)),
    "hook": Kind(of_hook, {"priority": "high"}, ("situation", "observations")),
}


@pytest.mark.parametrize(("name", "kind", "outcome"), CELLS)
def test_the_table_of_the_docs_says_what_becomes_of_a_mistake(
    name: str, kind: str, outcome: str, scenery: Scenery, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "hangs":
        monkeypatch.setattr(phase_context, "HOOK_TIMEOUT", 0.1)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    tried = KINDS[kind]
    variants = functions(name, scenery, tried.good, *tried.takes)
    for function in variants:
        if outcome == "refused":
            with pytest.raises(PluginError, match=r"is async|has a yield"):
                tried.outcome(name, function)
        else:
            assert tried.outcome(name, function) == outcome
    assert scenery.calls == (len(variants) if bodies(name, scenery) else 0)


def test_the_table_has_every_kind_and_its_words_are_explained() -> None:
    explained = set(re.findall(r"^\| ([\w-]+) \| ", SECTION.split("| outcome |")[1], re.MULTILINE))

    assert HEAD[1:] == list(KINDS)
    assert {cell for _, _, cell in CELLS} == explained
