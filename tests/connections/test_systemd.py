"""The connector `systemd` with a real systemd and a real journal."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boyd.plugins.command import CommandFailed
from boyd_connectors.systemd.plugin import LogParams, Systemd
from connection_kit import UpAgent
from harness import wait_until
from plugin_kit import Rig, data_of
from systemd_kit import UserSystemd, user_systemd

pytestmark = [pytest.mark.real, pytest.mark.long]

OPTIONS = """
user = true
interval = 0.5
settle = 0.5
journal = "{folder}"
units = ["boyd-*.service"]
patterns = [{{ name = "refused", contains = ["ERROR", "refused"], count = 3, window = 3600 }}]
[plugins.options.actions]
restart = {{}}
reset_failed = {{}}
"""


@pytest.fixture(scope="module")
def systemd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserSystemd]:
    # A socket's path must be short.
    with user_systemd(tmp_path_factory.mktemp("sd")) as running:
        yield running


@pytest.fixture
def rig(systemd: UserSystemd, monkeypatch: pytest.MonkeyPatch) -> Rig:
    for name, value in systemd.environment.items():
        monkeypatch.setenv(name, value)
    patterns = [{"name": "refused", "contains": ["ERROR", "refused"], "count": 3, "window": 1e4}]
    return Rig(
        Systemd(
            user=True,
            journal=systemd.journal,
            settle=0.5,
            units=["boyd-*.service"],
            patterns=patterns,
            actions={"restart": {}, "reset_failed": {}},
        )
    )


def troubles(rig: Rig) -> dict[str, str]:
    return {row["unit"]: row["trouble"] for row in data_of(rig.observe(), "unit")}


def test_a_failed_unit_is_seen_restarted_and_verified(
    systemd: UserSystemd, rig: Rig, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    systemd.unit("boyd-web.service", f"test -e {ready} && exec sleep 1000")
    systemd.control("start", "boyd-web.service")
    assert wait_until(lambda: troubles(rig)) == {"boyd-web.service": "failed"}
    params = {"unit": "boyd-web.service", "host": "here"}
    assert "+state: active" in rig.act("restart", params, "dry_run")["difference"]

    result = rig.act("restart", params)  # it does not help while the cause is there
    assert rig.verify("restart", params, result).verdict == "no effect"
    ready.touch()
    result = rig.act("restart", params)
    wait_until(lambda: rig.verify("restart", params, result).verdict == "effective")
    assert troubles(rig) == {}
    log = rig.host.tools["systemd:read_log"]
    assert "Started" in log.call("run", params=LogParams(unit="boyd-web.service"), ctx=rig.ctx)


def test_a_unit_that_restarts_again_and_again_is_seen_and_reset(
    systemd: UserSystemd, rig: Rig
) -> None:
    systemd.unit(
        "boyd-loop.service", "exit 1", "Restart=always", "RestartSec=0.1", "StartLimitBurst=8"
    )
    rig.observe()
    systemd.control("start", "boyd-loop.service")
    wait_until(lambda: troubles(rig).get("boyd-loop.service") == "restarts")
    wait_until(lambda: systemd.state("boyd-loop.service") == "failed")
    params = {"unit": "boyd-loop.service"}
    assert "-state: failed" in rig.act("reset_failed", params, "dry_run")["difference"]
    rig.act("reset_failed", params)
    assert rig.act("reset_failed", params, "verify") is True
    assert "boyd-loop.service" not in troubles(rig)


def test_messages_at_a_rate_are_seen_in_the_journal(systemd: UserSystemd, rig: Rig) -> None:
    systemd.unit("boyd-log.service", "echo start; sleep 1000")
    systemd.control("start", "boyd-log.service")
    wait_until(lambda: list(systemd.journal.rglob("*.journal")))
    rig.observe()
    assert data_of(rig.observe(), "pattern") == []
    systemd.unit(
        "boyd-db.service", "for n in 1 2 3; do echo ERROR: connection refused; done; sleep 1000"
    )
    systemd.control("start", "boyd-db.service")
    [alarm] = wait_until(lambda: data_of(rig.observe(), "pattern"))
    assert (alarm["unit"], alarm["pattern"]) == ("boyd-db.service", "refused")


def test_long_messages_are_seen_in_the_journal(systemd: UserSystemd, rig: Rig) -> None:
    trace = "x" * 6000
    systemd.unit(
        "boyd-long.service", f"for n in 1 2 3; do echo ERROR: refused {trace}; done; sleep 1000"
    )
    rig.observe()
    systemd.control("start", "boyd-long.service")
    alarms = wait_until(lambda: data_of(rig.observe(), "pattern"))
    assert "boyd-long.service" in [alarm["unit"] for alarm in alarms]


def test_a_systemd_that_is_killed_leaves_a_true_record(systemd: UserSystemd, rig: Rig) -> None:
    systemd.unit("boyd-slow.service", "exec sleep 1000", "ExecStartPre=/bin/sleep 30")
    params = {"unit": "boyd-slow.service"}
    outcome: list[Any] = []
    acting = threading.Thread(target=lambda: outcome.append(rig.act("restart", params)))
    acting.start()
    wait_until(lambda: systemd.state("boyd-slow.service") == "activating")
    systemd.kill()
    acting.join()
    assert outcome[0].unknown
    assert "may have taken effect" in outcome[0].error
    with pytest.raises(CommandFailed):
        rig.observe()
    with pytest.raises(CommandFailed):
        rig.verify("restart", params, {})

    systemd.start()
    assert data_of(rig.observe(), "units")


def test_an_agent_restarts_a_unit_that_a_person_has_approved(
    systemd: UserSystemd, tmp_path: Path
) -> None:
    text = f"""
    id = "units"
    mode = "continuous"
    loop_interval = 0.5
    [[plugins]]
    use = "systemd"
    [plugins.options]
    {OPTIONS.format(folder=systemd.journal)}
    """
    ready = tmp_path / "ready"
    systemd.unit("boyd-app.service", f"test -e {ready} && exec sleep 1000")
    systemd.control("start", "boyd-app.service")
    wait_until(lambda: systemd.state("boyd-app.service") == "failed")
    ready.touch()
    with UpAgent(tmp_path, text, **systemd.environment) as agent:
        failed_unit = agent.observed("systemd/unit")
        assert (failed_unit["unit"], failed_unit["trouble"]) == ("boyd-app.service", "failed")
        target = {"unit": failed_unit["unit"], "host": failed_unit["host"]}
        item, execution = agent.perform("systemd:restart", **target)
        assert "+state: active" in item["preview"]["output"]["difference"]
        assert execution["state"] == "succeeded"
        assert agent.verified(execution)["verdict"] == "effective"
    assert systemd.state("boyd-app.service") == "active"
