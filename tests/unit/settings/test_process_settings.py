"""Sources of the settings of a process: flags over environment over file over defaults."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from boyd.errors import ConfigError
from boyd.settings.process_settings import Settings, WorkerSettings, load_settings
from boyd_cli.api_access import profile_names
from boyd_worker.agent_host import AgentHost
from boyd_worker.worker import run_worker
from cli_kit import Cli


def test_flags_override_the_environment_which_overrides_the_file_which_overrides_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "boyd.toml"
    file.write_text("[api]\nburst = 11\nthreads = 11\nport = 11\n")
    monkeypatch.setenv("BOYD_API__THREADS", "22")
    monkeypatch.setenv("BOYD_API__PORT", "22")
    api = load_settings({"api": {"port": 33}}, file).api

    assert (api.port, api.threads, api.burst) == (33, 22, 11)
    assert api.connections == Settings().api.connections


def test_a_command_uses_the_redis_of_its_flag_not_that_of_the_environment(tmp_path: Path) -> None:
    cli = Cli(tmp_path, BOYD_REDIS_URL="redis://127.0.0.1:1/0")
    result = cli.result("doctor", "--redis-url", "redis://127.0.0.1:2/0")

    assert result.exit_code != 0
    assert "redis://127.0.0.1:2/0: Redis does not answer" in str(result.output)
    assert "127.0.0.1:1/" not in result.output


def test_settings_need_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", dict[int, str]().__getitem__)

    assert load_settings().state_dir == Path("/var/lib/boyd")
    assert profile_names() == []


def test_a_carriage_return_is_no_part_of_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "a secret of more than thirty-two characters"
    monkeypatch.setenv("BOYD_APPROVAL_SECRET", f"{secret}\r")
    secret_read = load_settings().approval_secret

    assert secret_read is not None
    assert secret_read.get_secret_value() == secret


def test_a_worker_without_shared_memory_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boyd_worker.worker.SHARED_MEMORY", str(tmp_path / "shm"))
    runtime = SimpleNamespace(settings=Settings(worker=WorkerSettings(pool="prefork")))

    with pytest.raises(ConfigError, match=r"prefork needs .*/shm, .* --pool threads"):
        run_worker(cast(AgentHost, runtime))


def test_a_variable_for_a_file_has_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOYD_AUDIT_KEY_FILE", "")

    with pytest.raises(ConfigError, match="BOYD_AUDIT_KEY_FILE is empty; set it to the path"):
        load_settings()


def test_a_group_with_rights_has_a_name_that_can_be_seen_whole() -> None:
    with pytest.raises(ConfigError, match=r"invisible character U\+200B ZERO WIDTH SPACE"):
        load_settings({"rights": {"o\u200bps": ["approve shop:*"]}})
