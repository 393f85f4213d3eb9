"""docs/models.md is complete, and its example runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from boyd.settings.model import ModelSettings
from boyd.testing import model_server, scripted_replies
from boyd.testing.model_server import Reply

PAGE = (Path(__file__).parents[3] / "docs" / "models.md").read_text(encoding="utf-8")
#: Defaults that the page tells in words.
TOLD_IN_WORDS = {"usage", "finish"}


def settings(model: type[BaseModel] = ModelSettings, prefix: str = "") -> Iterator[Any]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from settings(kind, f"{prefix}{name}.")
        else:
            default = field.get_default(call_default_factory=True)
            yield pytest.param(prefix + name, field.is_required(), default, id=prefix + name)


def row(name: str) -> str:
    # The endings of investigations have names of their own.
    tables = PAGE.replace(PAGE[PAGE.index("### How they end") : PAGE.index("### In a plugin")], "")
    match = re.search(rf"^\| `{re.escape(name)}` \|.*", tables, re.MULTILINE)
    assert match, name
    return match[0]


def default_cell(default: Any) -> str:
    if default is None:
        return "none"
    return f"`{default}`".lower() if isinstance(default, bool) else f"`{default}`"


@pytest.mark.parametrize(("name", "is_required", "default"), list(settings()))
def test_every_model_setting_is_documented_with_its_default(
    name: str, is_required: bool, default: Any
) -> None:
    expected = "required" if is_required else default_cell(default)

    assert default == "" or f"| {expected} |" in row(name)


def test_every_field_of_a_reply_is_documented_with_its_default() -> None:
    for name, field in Reply.model_fields.items():
        default = field.get_default(call_default_factory=True)
        cells = row(to_camel(name))
        assert default == "" or name in TOLD_IN_WORDS or f"| {default_cell(default)} |" in cells, (
            name
        )


@pytest.mark.parametrize("kind", [scripted_replies.Cut, scripted_replies.End])
def test_every_cut_and_end_of_a_reply_is_documented(kind: Any) -> None:
    cells = row("cut") + row("end")

    assert all(f"`{word}`" in cells for word in get_args(kind))


def test_every_function_that_makes_a_reply_is_documented() -> None:
    functions = [name for name, value in vars(model_server).items() if _makes_reply(value)]

    assert functions
    assert all(f"`{name}(" in PAGE for name in functions)


def _makes_reply(value: Any) -> bool:
    here = getattr(value, "__module__", "") == model_server.__name__
    public = here and not value.__name__.startswith("_")
    return public and getattr(value, "__annotations__", {}).get("return") == "Reply"


def test_the_example_runs() -> None:
    block = r"^<!-- complete -->\n```python\n(.*?)^```$"
    [code] = re.findall(block, PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "example", "exec", dont_inherit=True), names)

    names["test_a_busy_server_is_asked_again"]()
