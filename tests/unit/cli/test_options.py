"""Values of options: what counts as JSON, and which numbers are taken."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from boyd_cli.options import Number, object_option, pairs_option

#: Deeper than Python's parser follows.
DEEP = "[" * 100_000 + "]" * 100_000


@click.command()
@pairs_option("-p", "pairs")
@object_option("--params")
@click.option("--wait", type=Number(0))
def take(pairs: dict[str, Any], params: dict[str, Any], wait: float | None) -> None:
    """Print what was parsed."""
    click.echo(json.dumps({"params": {**params, **pairs}, "wait": wait}))


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    """The outcome of the command with these arguments."""
    return CliRunner().invoke(take, arguments, input=stdin)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", DEEP, "[1", "", "yes"])
def test_a_value_that_json_cannot_hold_is_text(text: str) -> None:
    result = run("-p", f"x={text}")
    assert json.loads(result.output)["params"] == {"x": text}


@pytest.mark.parametrize("value", [1, 2.5, "a", None, True, [1, {"a": 2}]])
def test_a_value_that_is_json_is_parsed(value: object) -> None:
    result = run("-p", f"x={json.dumps(value)}")
    assert json.loads(result.output)["params"] == {"x": value}


@pytest.mark.parametrize("text", ["NaN", '{"x": NaN}', '{"x": 1e999}', '{"x": %s}' % DEEP, "{"])  # noqa: UP031
def test_an_object_that_json_cannot_hold_is_refused(text: str) -> None:
    result = run("--params", text)
    assert (result.exit_code, "not JSON" in result.output) == (2, True), result.output[:500]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_an_object_on_standard_input_may_have_any_encoding(encoding: str) -> None:
    result = run("--params", "-", stdin='{"x": "ä"}'.encode(encoding))
    assert json.loads(result.output)["params"] == {"x": "ä"}


@pytest.mark.parametrize("text", ["nan", "inf", "1e999"])
def test_a_number_is_finite(text: str) -> None:
    result = run("--wait", text)
    assert result.exit_code == 2
    assert f"'{text}' is not a finite number" in result.output
