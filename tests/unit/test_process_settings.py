"""Where the settings of a process come from: flags over environment over file over defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from boyd.settings.process_settings import Settings, load_settings
from cli_kit import Cli


def test_flags_override_the_environment_which_overrides_the_file_which_overrides_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "boyd.toml"
    file.write_text("[api]\nburst = 11\nthreads = 11\nport = 11\n")
    monkeypatch.setenv("BOYD_API__THREADS", "22")
    monkeypatch.setenv("BOYD_API__PORT", "22")
    found = load_settings({"api": {"port": 33}}, file).api

    assert (found.port, found.threads, found.burst) == (33, 22, 11)
    assert found.connections == Settings().api.connections


def test_a_command_uses_the_redis_of_its_flag_not_that_of_the_environment(tmp_path: Path) -> None:
    cli = Cli(tmp_path, BOYD_REDIS_URL="redis://127.0.0.1:1/0")
    result = cli.result("doctor", "--redis-url", "redis://127.0.0.1:2/0")

    assert result.exit_code != 0
    assert "redis://127.0.0.1:2/0: Redis does not answer" in str(result.output)
    assert "127.0.0.1:1/" not in result.output
