"""Functions of plugins that would never run are refused; whatever one raises ends only itself."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import repeat
from typing import Any

import pytest
from pydantic import BaseModel, model_validator

from boyd import Agent, Plugin, hook
from boyd.errors import PluginError
from boyd.models import Autonomy, Observation
from boyd.phases.time_limit import TimedCall, call, call_all
from boyd.plugin import Action, Endpoint, Observer, Orienter, Strategy, Tool
from boyd.plugin.components import Component
from boyd.plugin.hooks import SPECIFICATIONS, YIELDING
from boyd.testing import Lab
from kit import Recorder, agent, choice, chooses, plugin, reads, seen, sees

KINDS: list[type[Component]] = [Observer, Orienter, Strategy, Action, Tool, Endpoint]
FUNCTIONS = [(kind, name) for kind in KINDS for name in kind.functions]


async def coroutine() -> None:
    """Runs only when somebody awaits it."""


async def async_generator() -> AsyncIterator[None]:
    """Runs only when somebody iterates."""
    yield None


def generator() -> Iterator[Any]:
    """Runs only when somebody reads it."""
    yield seen()


def component(kind: type[Component], name: str, function: Callable[..., Any]) -> Component:
    """A component with that function, and a plain one where it needs another."""
    settings: dict[str, Any] = {next(iter(kind.functions)): lambda: None, name: function}
    return kind(name="one", **settings)


@pytest.mark.parametrize("function", [coroutine, async_generator])
@pytest.mark.parametrize(("kind", "name"), FUNCTIONS)
def test_a_component_may_not_be_async(
    kind: type[Component], name: str, function: Callable[..., Any]
) -> None:
    with pytest.raises(PluginError, match="is async, and nobody awaits it"):
        agent(component(kind, name, function))


@pytest.mark.parametrize(("kind", "name"), FUNCTIONS)
def test_a_component_may_only_be_a_generator_where_all_is_read(
    kind: type[Component], name: str
) -> None:
    part = component(kind, name, generator)
    if name in kind.yielding:
        agent(part)
    else:
        with pytest.raises(PluginError, match="has a yield, and nobody reads it"):
            agent(part)


def with_hook(name: str, function: Callable[..., Any]) -> Plugin:
    """A plugin with one hook."""
    hooks: dict[str, Any] = {name: function}
    return plugin(**hooks)


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_a_hook_may_not_be_async_nor_a_generator_that_nobody_reads(name: str) -> None:
    with pytest.raises(PluginError, match="is async, and nobody awaits it"):
        Agent("a", plugins=[with_hook(name, coroutine)])
    if name not in YIELDING:
        with pytest.raises(PluginError, match="has a yield, and nobody reads it"):
            Agent("a", plugins=[with_hook(name, generator)])


def test_init_may_not_be_async() -> None:
    class Later(Plugin):
        id = "later"

        async def init(self, ctx: Any) -> None:  # type: ignore[override]
            """Never runs."""

    with pytest.raises(PluginError, match=r"init\(ctx.* is async, and nobody awaits it"):
        Agent("a", plugins=[Later()])


def test_a_guard_that_returns_a_coroutine_blocks_the_action() -> None:
    class Wrapped(Plugin):
        id = "wrapped"
        on_before_act = hook(fail_closed=True)(lambda self: coroutine())

    act = Recorder()
    own_plugin = plugin(chooses(choice()), act.action())
    lab = Lab(Agent("test", plugins=[own_plugin, Wrapped()]))
    [result] = lab.run().action_results

    assert act.calls == []
    assert "returned a coroutine, which nobody awaits" in str(result.error)


def test_observations_may_be_yielded_by_observers_and_hooks() -> None:
    def observe() -> Iterator[Observation]:
        yield seen("a")
        yield seen("b")

    more = plugin(id="more", on_observe=lambda: (item for item in [seen("c")]))
    own_plugin = plugin(Observer(name="eyes", observe=observe))
    result = Lab(Agent("test", plugins=[own_plugin, more])).run()

    assert [observation.source for observation in result.observations] == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["observe", "partition"])
def test_a_generator_without_end_is_read_up_to_a_limit(name: str) -> None:
    def endless() -> Iterator[Observation]:
        while True:
            yield seen()

    functions: dict[str, Any] = {"observe": lambda: [seen()], name: endless}
    result = Lab(agent(Observer(name="eyes", timeout=600, **functions))).run()

    assert [failure.error for failure in result.observer_errors] == [
        "ValueError: gave more than 100000 values"
    ]


def test_an_iterator_without_end_is_read_up_to_a_limit() -> None:
    endless = agent(Observer(name="eyes", timeout=600, observe=lambda: repeat(seen())))

    [failure] = Lab(endless).run().observer_errors

    assert failure.error == "ValueError: gave more than 100000 values"


class Panic(BaseException):
    """As an extension in Rust raises it."""


class Mute(Exception):
    """As libraries have it: its text needs what it was not given."""

    def __str__(self) -> str:
        raise AttributeError("status")


class NoText(Exception):
    """Its text is none."""

    def __str__(self) -> str:
        return None  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def _no_terminal() -> Iterator[None]:
    """As in a process of workers, nobody can press Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


ENDS = [Panic("index out of bounds"), SystemExit(2), KeyboardInterrupt(), Mute(), NoText()]


def raises(error: BaseException) -> Callable[[], Any]:
    """A function that raises it."""

    def function() -> Any:
        raise error

    return function


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
def test_an_error_in_a_component_does_not_affect_the_others(error: BaseException) -> None:
    act = Recorder()
    failing_agent = agent(
        sees("eyes", seen()),
        Observer(name="blind", observe=raises(error)),
        reads("brain", "well"),
        Orienter(name="mad", orient=raises(error)),
        Strategy(name="never", decide=lambda: None, applicable_when=raises(error)),
        chooses(choice()),
        act.action(),
    )
    result = Lab(failing_agent).run()
    name = type(error).__name__

    assert result.success
    assert [observation.source for observation in result.observations] == ["test"]
    assert [p.id for p in result.observer_errors if name in p.error] == ["p:blind"]
    assert {p.id for p in result.problems if name in p.error} == {"p:mad", "p:never"}
    assert len(act.calls) == 1


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
def test_errors_of_strategies_hooks_and_actions_are_reported_by_type(
    error: BaseException,
) -> None:
    name = type(error).__name__
    deciding = Lab(agent(sees("eyes", seen()), Strategy(name="s", decide=raises(error)))).run()
    acting = Lab(agent(chooses(choice()), Action(name="do", execute=raises(error)))).run()
    hooked = plugin(chooses(choice()), Recorder().action(), on_orient=raises(error))
    hooking = Lab(Agent("test", plugins=[hooked])).run()

    assert deciding.decision is not None
    assert name in deciding.decision.rationale
    [result] = acting.action_results
    assert not result.success
    assert name in str(result.error)
    assert hooking.success
    assert [p.id for p in hooking.problems if name in p.error] == ["p.on_orient"]


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
def test_a_guard_that_ends_in_any_way_blocks_the_action(error: BaseException) -> None:
    act = Recorder()
    guard = hook(fail_closed=True)(raises(error))
    own_plugin = plugin(chooses(choice()), act.action(), on_before_act=guard)
    [result] = Lab(Agent("test", plugins=[own_plugin])).run().action_results

    assert act.calls == []
    assert "guard p.on_before_act failed" in str(result.error)


def test_calls_side_by_side_outlive_one_that_exits() -> None:
    calls = [TimedCall(raises(SystemExit(3)), 60), TimedCall(lambda: "well", 60)]
    exited, well = call_all(calls)

    assert isinstance(exited.error, Exception)
    assert well.value == "well"


def checks(error: BaseException) -> type[BaseModel]:
    """A model of params whose own check raises it."""

    class Params(BaseModel):
        @model_validator(mode="after")
        def _check(self) -> Params:
            raise error

    return Params


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "settings", [{}, {"doubt": lambda: ""}, {"autonomy": Autonomy(mode="approval-required")}]
)
def test_params_whose_check_ends_in_any_way_are_invalid(
    error: BaseException, settings: dict[str, Any]
) -> None:
    act = Recorder()
    lab = Lab(agent(chooses(choice()), act.action(params=checks(error), **settings)))
    [result] = lab.run().action_results

    assert act.calls == []
    assert f"Params could not be checked: {type(error).__name__}" in str(result.error)


@pytest.mark.parametrize("answer", [False, "no", 0])
def test_a_guard_that_returns_no_instead_of_raising_blocks_the_action(answer: object) -> None:
    act = Recorder()
    guard = hook(fail_closed=True)(lambda: answer)
    before = plugin(chooses(choice()), act.action(), on_before_act=guard)
    deciding = plugin(chooses(choice()), act.action(), on_decide=guard)
    [result] = Lab(Agent("test", plugins=[before])).run().action_results
    decided = Lab(Agent("test", plugins=[deciding])).run()

    assert act.calls == []
    assert "raise Veto to stop the action" in str(result.error)
    assert decided.decision is not None
    assert decided.decision.is_no_op


def test_a_function_that_replaces_the_timer_neither_fails_nor_hinders_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def replace() -> int:
        monkeypatch.setattr(signal, "setitimer", None)
        return 1

    assert call(replace, 60) == 1
    assert call(lambda: 2, 60) == 2
