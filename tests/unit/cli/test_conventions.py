"""Conventions that all commands share."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from boyd_cli import boyd
from boyd_cli.options import object_option
from cli_kit import leaves

#: The commands that ask before they go on, with the arguments that they need.
ASKING = {
    ("approvals", "approve"): ["1a2b"],
    ("approvals", "deny"): ["1a2b"],
    ("approvals", "withdraw"): ["1a2b"],
    ("retire",): [],
}


def test_the_commands_that_ask_are_those_with_yes() -> None:
    asking = {
        path for path, command in leaves() if any("--yes" in param.opts for param in command.params)
    }
    assert asking == ASKING.keys()


@pytest.mark.parametrize("path", ASKING, ids=" ".join)
def test_a_command_that_asks_names_the_option_when_there_is_no_terminal(
    path: tuple[str, ...],
) -> None:
    done = CliRunner().invoke(boyd, [*path, *ASKING[path]], input="y\n")
    assert done.exit_code == 2
    assert "pass --yes: there is no terminal on which to ask" in done.output


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_an_object_from_standard_input_may_be_in_any_encoding_of_json(encoding: str) -> None:
    @click.command()
    @object_option("--params")
    def show(params: dict[str, Any]) -> None:
        click.echo(params["path"])

    done = CliRunner().invoke(show, ["--params", "-"], input='{"path": "/größe"}'.encode(encoding))
    assert done.output == "/größe\n"
