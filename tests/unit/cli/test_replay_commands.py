"""The options of `boyd replay`."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from boyd_cli.commands.replay_commands import replay


@pytest.mark.parametrize("limits", ["newly automatic", "errors", "", "error>1", "none,error"])
def test_an_unknown_difference_is_refused_with_the_names_of_all(limits: str) -> None:
    result = CliRunner().invoke(replay, ["--fail-on", limits])

    assert result.exit_code == 2
    text = " ".join(result.output.split())
    assert (
        "choose from automatic, asked, refused, approval, params, missing, less, flipped, error, "
        "cannot-tell, or none"
    ) in text
