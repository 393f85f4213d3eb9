"""Plugins that would not do what they say are refused, with the component and its mistake."""

from __future__ import annotations

import typing
from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from click.testing import CliRunner
from pydantic import BaseModel, Field

from boyd import Agent, Observation, Plugin, action, observer
from boyd.agent import load_agent
from boyd.errors import PluginError
from boyd.models import JsonObject, Sandbox
from boyd.plugin import Action, Endpoint, Observer, Orienter, Strategy, Tool
from boyd.plugin.components import Component
from boyd.plugin.discovery import find_plugin
from boyd.testing import Lab
from boyd_cli.commands.check_commands import check
from kit import agent, seen


class Strict(BaseModel):
    """Params of an action."""

    folder: str = Field(pattern="^/srv")


class Stricter(Strict):
    """More than that."""


@dataclass
class Plain:
    """No model."""

    folder: str


class Typed(TypedDict):
    """No model either."""

    folder: str


def takes(annotation: Any) -> Callable[..., None]:
    """A function with that annotation of `params`."""

    def function(params: Any) -> None:
        """Take them."""

    function.__annotations__["params"] = annotation
    return function


UNCHECKED = [
    Strict | None,
    typing.Optional[Strict],  # noqa: UP045 - as many still write it
    Strict | Stricter,
    list[Strict],
    type[Strict],
    Plain,
    Typed,
    str,
    dict[str, int],
    Mapping[str, Strict],
    dict[str, str] | None,
]


@pytest.mark.parametrize("annotation", UNCHECKED)
@pytest.mark.parametrize(("kind", "name"), [(Action, "execute"), (Tool, "run")])
def test_an_annotation_of_params_that_nobody_checks_is_refused(
    kind: type[Action | Tool], name: str, annotation: Any
) -> None:
    wrong: dict[str, Any] = {name: takes(annotation)}

    with pytest.raises(PluginError, match=f"^plugin 'p': do: {name} takes params as .*annotate it"):
        agent(kind(name="do", **wrong))


@pytest.mark.parametrize("annotation", [Strict, Annotated[Strict, "for people"]])
def test_a_model_of_params_is_honoured(annotation: Any) -> None:
    typed_agent = agent(Action(name="do", execute=takes(annotation), dry_run=takes(BaseModel)))

    assert typed_agent.host.actions["p:do"].params is Strict


@pytest.mark.parametrize(
    "annotation",
    [Any, object, dict, dict[str, Any], dict[str, object], Mapping, Mapping[str, Any], JsonObject],
)
def test_any_mapping_of_params_is_what_it_says(annotation: Any) -> None:
    typed_agent = agent(Action(name="do", execute=takes(annotation)))

    assert typed_agent.host.actions["p:do"].params is None


def test_the_model_may_be_named_by_any_function_of_an_action() -> None:
    def execute() -> None:
        """Needs none."""

    typed_agent = agent(Action(name="do", execute=execute, dry_run=takes(Strict)))

    assert typed_agent.host.actions["p:do"].params is Strict


def test_annotations_are_read_of_whatever_can_be_called() -> None:
    class Execute:
        def __call__(self, params: Strict) -> None:
            """Take them."""

    for execute in (Execute(), partial(Execute.__call__, Execute()), partial(takes(Strict))):
        typed_agent = agent(Action(name="do", execute=execute))

        assert typed_agent.host.actions["p:do"].params is Strict


@pytest.mark.parametrize("other", [Stricter, Plain, dict[str, Any]])
@pytest.mark.parametrize("name", ["dry_run", "doubt", "rollback", "verify"])
def test_functions_of_an_action_may_not_differ_in_its_params(name: str, other: Any) -> None:
    functions: dict[str, Any] = {"execute": takes(Strict), name: takes(other)}

    with pytest.raises(PluginError, match=f"do: {name} takes params as .*, and gets Strict"):
        agent(Action(name="do", **functions))


def test_an_annotation_may_not_contradict_the_model_of_the_component() -> None:
    with pytest.raises(PluginError, match=r"takes params as .*Stricter, and gets Strict"):
        agent(Action(name="do", params=Strict, execute=takes(Stricter)))


def test_a_second_method_may_not_replace_a_component() -> None:
    with pytest.raises(TypeError, match=r"two methods are named 'usage'.* give it another name"):

        class Twice(Plugin):
            @observer()
            def usage(self) -> list[Observation]:
                """The first one."""
                return []

            @observer()  # type: ignore[no-redef]
            def usage(self) -> list[Observation]:  # noqa: F811 - the mistake
                """The second one."""
                return []


def test_a_function_of_a_component_may_not_replace_it() -> None:
    with pytest.raises(TypeError, match=r"two methods are named 'do'"):

        class Replaced(Plugin):
            @action()
            def do(self) -> None:
                """Do it."""

            @do.dry_run  # type: ignore[no-redef]
            def do(self) -> str:
                """Would do it."""
                return "would"


def test_a_second_hook_may_not_replace_the_first() -> None:
    with pytest.raises(TypeError, match=r"two methods are named 'on_loop_start'"):

        class Twice(Plugin):
            def on_loop_start(self) -> None:
                """The first one."""

            def on_loop_start(self) -> None:  # type: ignore[no-redef]  # noqa: F811 - the mistake
                """The second one."""


def test_other_names_of_a_plugin_may_be_defined_again() -> None:
    class Named(Plugin, ABC):
        id = "named"

        @property
        def name(self) -> str:
            """As Python has it."""
            return self._name

        @name.setter
        def name(self, value: str) -> None:
            self._name = value

    Agent("a", plugins=[Named()])


def test_a_plugin_made_without_a_class_statement_is_of_its_module() -> None:
    assert type("Made", (Plugin,), {"id": "made"}).__module__ == __name__


class Sites(Plugin):
    """Has components to override."""

    id = "sites"

    @observer()
    def check(self, shard: Any) -> list[Observation]:
        """Check them."""
        return [seen(str(shard))]

    @check.partition
    def _split(self) -> list[str]:
        return ["base"]


def test_an_override_without_a_decorator_is_refused() -> None:
    class Mine(Sites):
        def check(self, shard: Any) -> list[Observation]:
            """No observer."""
            return []

    class Further(Mine):
        """Has it from its base."""

    for kind in (Mine, Further):
        with pytest.raises(PluginError, match=r"plugin 'sites': check of Mine .* `check = None`"):
            Agent("a", plugins=[kind()])


def test_an_override_may_be_decorated_or_leave_the_component_out() -> None:
    class Mine(Sites):
        @observer(interval=60)
        def check(self) -> list[Observation]:
            """Another one."""
            return [seen("mine")]

    class Less(Sites):
        check = None

    assert Agent("a", plugins=[Mine()]).host.observers["sites:check"].interval == 60
    assert not Agent("a", plugins=[Less()]).host.observers


def test_an_override_of_a_function_of_a_component_is_used() -> None:
    class Mine(Sites):
        def _split(self) -> list[str]:
            return ["mine", *super()._split()]

    observations = Lab(Agent("test", plugins=[Mine()])).run().observations

    assert [observation.source for observation in observations] == ["mine", "base"]


def test_two_classes_of_a_file_may_not_share_an_id(tmp_path: Path) -> None:
    text = 'from boyd import Plugin\nclass Base(Plugin):\n    id = "disk"\nclass Disk(Base): ...\n'
    (tmp_path / "disk.py").write_text(text)

    with pytest.raises(PluginError, match=r"'disk': Base and Disk of .*disk.py both have this id"):
        find_plugin("disk", tmp_path)


def test_a_replaced_component_is_found_in_its_file(tmp_path: Path) -> None:
    method = "    @observer()\n    def usage(self): return []\n"
    head = 'from boyd import Plugin, observer\nclass Disk(Plugin):\n    id = "disk"\n'
    text = head + 2 * method
    (tmp_path / "disk.py").write_text(text)

    with pytest.raises(PluginError, match=r"disk.py line [67]: TypeError: two methods are named"):
        find_plugin("disk", tmp_path)


def nothing() -> None:
    """Every function of a component may be this."""


SETTINGS: list[tuple[type[Component], str, Any]] = [
    (Action, "risk", "lowish"),
    (Action, "title", 3),
    (Action, "timeout", -1),
    (Action, "timeout", float("nan")),
    (Action, "timeout", float("inf")),
    (Action, "timeout", "60"),
    (Action, "queue", "Bad Queue!"),
    (Action, "queue", ""),
    (Action, "queue", "a,b"),
    (Action, "reversibility", "maybe"),
    (Action, "idempotent", "no"),
    (Action, "budget", 3),
    (Action, "category", "thinking"),
    (Action, "concurrency", 1.5),
    (Action, "output", dict),
    (Action, "params", dict),
    (Action, "sandbox", {"cpu": -3}),
    (Action, "target", 3),
    (Action, "checks", {"every": 0}),
    (Observer, "interval", 0),
    (Observer, "interval", "60"),
    (Observer, "scope", "everywhere"),
    (Observer, "isolated", "yes"),
    (Observer, "name", "two words"),
    (Observer, "name", "a:b"),
    (Orienter, "timeout", 0),
    (Orienter, "description", None),
    (Strategy, "withdraw_when_clear", 1),
    (Tool, "poll", "often"),
    (Endpoint, "timeout", 1e9),
    (Endpoint, "path", 3),
    (Endpoint, "method", "get"),
]


@pytest.mark.parametrize(("kind", "setting", "value"), SETTINGS)
def test_an_invalid_setting_is_refused_with_its_component_and_value(
    kind: type[Component], setting: str, value: Any
) -> None:
    functions: dict[str, Any] = {next(iter(kind.functions)): nothing}
    name = value if setting == "name" else "part"
    settings = {**functions, "name": name, setting: value}

    with pytest.raises(PluginError) as refusal:
        agent(kind(**settings))

    expected = setting if setting == "method" else f"{setting} is"
    assert f"plugin 'p': {name}: {expected} {value!r}" in str(refusal.value)


def test_an_invalid_setting_of_a_class_is_refused() -> None:
    class Usage(Observer):
        interval = -60

        def observe(self) -> list[Observation]:
            """See nothing."""
            return []

    with pytest.raises(PluginError, match=r"^plugin 'p': usage: interval is -60: .*greater than 0"):
        agent(Usage())


def test_settings_become_what_they_are_declared_as() -> None:
    typed_agent = agent(Action(name="do", execute=nothing, timeout=5, sandbox={"cpu": 3}))
    action = typed_agent.host.actions["p:do"]

    assert (action.timeout, action.sandbox) == (5.0, Sandbox(cpu=3))


def test_check_names_plugin_component_and_value(tmp_path: Path) -> None:
    (tmp_path / "disk.py").write_text(
        'from boyd import Plugin, action\nclass Disk(Plugin):\n    id = "disk"\n'
        '    @action(risk="lowish")\n    def clean(self): ...\n'
    )
    agent_file = tmp_path / "agent.toml"
    agent_file.write_text('id = "a"\nplugins_dir = "."\n[[plugins]]\nuse = "disk"\n')
    checked = CliRunner().invoke(check, [str(agent_file)])

    assert checked.exit_code == 1
    message = "plugin 'disk': clean: risk is 'lowish': Input should be 'low', 'medium', 'high' or"
    assert message in " ".join(checked.output.split())


def _with_log(function: Any) -> Any:
    @wraps(function)
    def logging(*args: Any) -> Any:
        return function(*args)

    return logging


@pytest.mark.parametrize("decorator", [property, staticmethod, classmethod, _with_log])
def test_a_decorator_above_that_of_a_component_does_not_hide_it(decorator: Any) -> None:
    class Hiding(Plugin):
        id = "hiding"

        @decorator  # type: ignore[untyped-decorator]
        @observer()
        def look(self) -> list[Observation]:
            return []

    with pytest.raises(PluginError, match="look of Hiding hides a component"):
        Agent("test", plugins=[Hiding()])


@pytest.mark.parametrize("error", ["SystemExit(2)", "GeneratorExit()"])
@pytest.mark.parametrize(
    "method",
    ["__init__(self, **_)", "use_folder(self, _)", "offers(self, _)", "component_queue(self)"],
)
def test_a_plugin_that_ends_the_process_while_it_loads_is_named(
    tmp_path: Path, method: str, error: str
) -> None:
    text = f"""
from boyd import Plugin, action

class Ends(Plugin):
    id = "ends"

    def {method}:
        raise {error}

    @action()
    def act(self):
        pass
"""
    (tmp_path / "ends.py").write_text(text)
    (tmp_path / "agent.toml").write_text('id = "a"\nplugins_dir = "."\n[[plugins]]\nuse = "ends"\n')

    with pytest.raises(PluginError, match=rf"plugin 'ends': .*ends\.py line 8: {error[:8]}"):
        load_agent(str(tmp_path / "agent.toml"))


def test_a_plugin_whose_import_ends_in_a_panic_is_named(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text("class Panic(BaseException): ...\nraise Panic('ends')\n")

    with pytest.raises(PluginError, match=r"ends\.py line 2: Panic: ends"):
        find_plugin("ends", tmp_path)
