"""Registering plugins: what is wrong is said at once, with plugin, hook and what was expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import requests
import requests.adapters
from pydantic import BaseModel

from boyd import (
    Agent,
    BoydError,
    Context,
    Observation,
    Plugin,
    PluginError,
    action,
    observer,
    strategy,
)
from boyd.plugin import Observer, PluginHost
from boyd.plugin.discovery import find_plugin
from boyd.testing import Lab
from kit import plugin, seen, sees


def refusal(*plugins: Plugin) -> str:
    """The error of registering *plugins*."""
    with pytest.raises(PluginError) as caught:
        PluginHost(plugins)
    return str(caught.value)


def test_two_plugins_with_one_id_are_refused() -> None:
    assert (
        refusal(plugin(), plugin())
    ) == "plugin 'p': two plugins have this id; give one of them another"


def test_two_components_with_one_name_are_refused() -> None:
    assert "two components are named 'o'" in refusal(plugin(sees("o"), sees("o")))


def test_an_unknown_hook_is_refused_with_the_nearest_one() -> None:
    assert (
        refusal(plugin(on_observed=lambda: None))
    ) == "plugin 'p': unknown hook 'on_observed'; did you mean 'on_observe'?"


def test_a_hook_with_a_wrong_signature_is_refused_with_the_right_one() -> None:
    error = refusal(plugin(on_observe=lambda observation, ctx: None))

    assert "plugin 'p': hook on_observe" in error
    assert "takes 'observation'; expected (observations, ctx) or fewer of them" in error


def test_a_component_with_a_wrong_signature_is_refused_with_the_right_one() -> None:
    error = refusal(plugin(Observer(name="o", observe=lambda context: [])))

    assert "takes 'context'; expected (ctx, shard) or fewer of them" in error


def test_a_component_without_its_function_is_refused() -> None:
    assert "no function observe(ctx, shard)" in refusal(plugin(Observer(name="o")))


@pytest.mark.parametrize("id", ["", "p:q", "p q", "p/q", "p*", "p\n"])
def test_a_plugin_without_a_usable_id_is_refused(id: str) -> None:
    assert f"and is {id!r}" in refusal(plugin(id=id))


def test_a_method_without_self_is_refused_by_its_name() -> None:
    class Selfless(Plugin):
        id = "selfless"

        @observer()
        def usage() -> list[Observation]:
            return []

    assert "Selfless.usage takes no `self`" in refusal(Selfless())


def test_a_plugin_has_to_call_the_base_class() -> None:
    class Own(Plugin):
        id = "own"

        def __init__(self) -> None:
            """Forget the base class."""

    assert "plugin 'own': its __init__ has to call super().__init__(**options)" in refusal(Own())


def test_components_of_another_kind_are_refused() -> None:
    broken_plugin = plugin()
    broken_plugin.components = [print]  # type: ignore[list-item]

    assert "`components` list <built-in function print>, which is no component" in refusal(
        broken_plugin
    )


def test_a_wrong_option_names_the_plugin_and_the_option() -> None:
    class Strict(Plugin):
        id = "strict"

        class Options(Plugin.Options):
            level: int = 1

    with pytest.raises(PluginError, match=r"plugin 'strict': level: .*integer"):
        Strict(level="high")
    with pytest.raises(PluginError, match=r"plugin 'strict': colour: is not known"):
        Strict(colour="red")


def test_a_refused_plugin_leaves_nothing_behind() -> None:
    host = PluginHost([plugin(sees("o"))])
    with pytest.raises(PluginError):
        host._register(plugin(sees("x"), id="q", on_nothing=lambda: None))

    assert list(host.plugins) == ["p"]
    assert list(host.observers) == ["p:o"]


def test_functions_take_what_they_need() -> None:
    ids: list[Any] = []

    class Frugal(Plugin):
        id = "frugal"

        @observer()
        def nothing(self) -> list[Observation]:
            return [seen()]

        def on_observe(self, ctx: Context) -> None:
            ids.append(ctx.plugin_id)

    Lab(Agent("test", plugins=[Frugal()])).run()

    assert ids == ["frugal"]


def test_decorated_methods_stay_methods() -> None:
    class Own(Plugin):
        id = "own"

        @observer()
        def look(self) -> list[Observation]:
            return [seen("direct")]

    assert Own().look()[0].source == "direct"


def test_a_subclass_replaces_a_component_of_its_base() -> None:
    class Base(Plugin):
        id = "base"

        @observer()
        def look(self) -> list[Observation]:
            return [seen("base")]

    class Derived(Base):
        @observer()
        def look(self) -> list[Observation]:
            return [seen("derived")]

    result = Lab(Agent("test", plugins=[Derived()])).run()

    assert [o.source for o in result.observations] == ["derived"]


def test_one_class_can_be_used_twice_under_two_ids() -> None:
    class Look(Observer):
        def observe(self) -> list[Observation]:
            return [seen(self.id)]

    class Twice(Plugin):
        id = "twice"
        components = (Look(),)

    first, second = Twice(), Twice()
    second.id = "again"
    result = Lab(Agent("test", plugins=[first, second])).run()

    assert [o.source for o in result.observations] == ["twice:look", "again:look"]


def test_an_actions_params_model_is_found_in_its_annotation() -> None:
    host = PluginHost([Annotated()])

    assert Size is host.actions["annotated:resize"].params
    assert host.actions["annotated:resize"].description == "Change the size."


def test_a_strategy_and_its_predicate_belong_together() -> None:
    class Choosy(Plugin):
        id = "choosy"

        @strategy()
        def choose(self) -> Any:
            return None

        @choose.applicable_when
        def _never(self) -> bool:
            return False

    assert not PluginHost([Choosy()]).strategies["choosy:choose"].call("applicable_when")


def test_init_runs_in_plugin_order_and_what_it_raises_keeps_the_agent_from_starting() -> None:
    order: list[str] = []

    class First(Plugin):
        id = "first"

        def init(self, ctx: Context) -> None:
            order.append(ctx.plugin_id)

    class Second(First):
        id = "second"

        def init(self, ctx: Context) -> None:
            super().init(ctx)
            raise OSError("no licence")

    with pytest.raises(PluginError, match="plugin 'second': init failed: OSError: no licence"):
        Lab(Agent("test", plugins=[First(), Second()]))

    assert order == ["first", "second"]


def test_plugins_are_found_by_entry_point_by_path_and_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from boyd import Plugin\n\nclass Mine(Plugin):\n    id = 'my-own'\n"
    )

    assert find_plugin("example").id == "example"
    assert find_plugin("host_metrics").id == "host-metrics"
    assert find_plugin("boyd.plugins.example:Example").id == "example"
    assert find_plugin("my-own", tmp_path).id == "my-own"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("exampel", "did you mean 'example'"),
        ("boyd.plugins.example:Nothing", "has no 'Nothing'"),
        ("boyd.nothing:X", "cannot import"),
        ("boyd.plugins.example:Decision", "is not a boyd.Plugin class"),
    ],
)
def test_a_plugin_that_is_not_found_says_where_it_was_looked_for(name: str, place: str) -> None:
    with pytest.raises(BoydError) as caught:
        find_plugin(name)

    assert place in str(caught.value)


def test_a_plugin_file_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    (tmp_path / "torn.py").write_text("import nothing_like_this\n")
    with pytest.raises(PluginError, match=r"torn.py line 1: No module named 'nothing_like"):
        find_plugin("torn", tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "orientier()",
            "mine.py line 3: name 'orientier' is not defined; did you mean 'orienter'?",
        ),
        ("pritn(1)", "mine.py line 3: name 'pritn' is not defined; did you mean 'print'?"),
        ("from boyd import Plugni", "mine.py line 3: cannot import name 'Plugni' from 'boyd'"),
        ("from boyd import Plugni", "; did you mean 'Plugin'?"),
        ("'x'.uper()", "mine.py line 3: AttributeError: 'str' object has no attribute 'uper'"),
        ("'x'.uper()", "; did you mean 'upper'?"),
        ("def f(:", "mine.py line 3: invalid syntax"),
        ("1 / 0", "mine.py line 3: ZeroDivisionError: division by zero"),
    ],
)
def test_an_error_in_a_plugin_file_names_the_line(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(f"from boyd import orienter\n\n{line}\n")
    with pytest.raises(PluginError) as caught:
        find_plugin("mine", tmp_path)

    assert message in str(caught.value)


def test_an_error_below_a_plugins_own_code_names_the_line_that_led_to_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import json\n\njson.loads('{')\n")
    with pytest.raises(PluginError, match=r"mine.py line 3: JSONDecodeError: Expecting"):
        find_plugin("mine", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "limit"), [({}, 10.0), ({"timeout": None}, 10.0), ({"timeout": 3}, 3)]
)
def test_a_plugins_http_never_waits_for_ever(
    monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], limit: float
) -> None:
    sent: list[Any] = []

    def send(_: Any, *__: Any, **options: Any) -> requests.Response:
        sent.append(options["timeout"])
        response = requests.Response()
        response.status_code = 200
        return response

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    http = Lab(Agent("test")).engine.context("p").http

    assert http.get("http://127.0.0.1:1/", **arguments).ok
    assert sent == [limit]


class Size(BaseModel):
    """Parameters."""

    size: int


class Annotated(Plugin):
    """A plugin whose action declares its params."""

    id = "annotated"

    @action()
    def resize(self, params: Size) -> int:
        """Change the size."""
        return params.size
