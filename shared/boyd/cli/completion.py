"""`boyd completion`: the script that lets a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from boyd.cli import output
from boyd.cli.group import boyd


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes a shell complete `boyd`.

    For bash: `source <(boyd completion bash)`, in ~/.bashrc for all shells to come.
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    output.say(kind(boyd, {}, "boyd", "_BOYD_COMPLETE").source())
