"""Plugins that would not do what they say are refused, with the component and its mistake."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypedDict

import pytest
from pydantic import BaseModel, Field

from boyd.errors import PluginError
from boyd.models import JsonObject
from boyd.plugin import Action, Tool
from kit import agent


class Strict(BaseModel):
    """What an action takes."""

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
    made = agent(Action(name="do", execute=takes(annotation), dry_run=takes(BaseModel)))

    assert made.host.actions["p:do"].params is Strict


@pytest.mark.parametrize(
    "annotation",
    [Any, object, dict, dict[str, Any], dict[str, object], Mapping, Mapping[str, Any], JsonObject],
)
def test_any_mapping_of_params_is_what_it_says(annotation: Any) -> None:
    made = agent(Action(name="do", execute=takes(annotation)))

    assert made.host.actions["p:do"].params is None


def test_the_model_may_be_named_by_any_function_of_an_action() -> None:
    def execute() -> None:
        """Needs none."""

    made = agent(Action(name="do", execute=execute, dry_run=takes(Strict)))

    assert made.host.actions["p:do"].params is Strict


def test_annotations_are_read_of_whatever_can_be_called() -> None:
    class Execute:
        def __call__(self, params: Strict) -> None:
            """Take them."""

    for execute in (Execute(), partial(Execute.__call__, Execute()), partial(takes(Strict))):
        made = agent(Action(name="do", execute=execute))

        assert made.host.actions["p:do"].params is Strict


@pytest.mark.parametrize("other", [Stricter, Plain, dict[str, Any]])
@pytest.mark.parametrize("name", ["dry_run", "doubt", "rollback", "verify"])
def test_functions_of_an_action_may_not_differ_in_its_params(name: str, other: Any) -> None:
    functions: dict[str, Any] = {"execute": takes(Strict), name: takes(other)}

    with pytest.raises(PluginError, match=f"do: {name} takes params as .*, and gets Strict"):
        agent(Action(name="do", **functions))


def test_an_annotation_may_not_contradict_the_model_of_the_component() -> None:
    with pytest.raises(PluginError, match=r"takes params as .*Stricter, and gets Strict"):
        agent(Action(name="do", params=Strict, execute=takes(Stricter)))
