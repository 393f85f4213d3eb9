"""The plugin `systemd` with stand-ins for `systemctl` and `journalctl` that print as those do."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from boyd.errors import PluginError
from boyd.models import ActionResult
from boyd.plugins.command import MAX_BYTES, CommandFailed
from boyd.plugins.results import uncertain
from boyd_connectors.systemd import journal
from boyd_connectors.systemd.journal import Journal, JournalEntry, JournalPattern, PatternCounts
from boyd_connectors.systemd.plugin import Systemd, UnitParams
from plugin_kit import Rig, data_of

REFUSED = {"name": "refused", "contains": ["ERROR", "refused"], "count": 4, "window": 60}


class Host:
    """The programs of a host, which print what the test says."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("systemctl", "journalctl"):
            (folder / name).write_text(
                f'#!/bin/sh\necho "$@" >> {folder}/calls\ncat {folder}/{name}.out\n'
                f"exit $(cat {folder}/{name}.code 2> /dev/null || echo 0)\n"
            )
            (folder / name).chmod(0o755)
            (folder / f"{name}.out").touch()

    def says(self, name: str, text: str, code: int = 0) -> None:
        (self._folder / f"{name}.out").write_text(text)
        (self._folder / f"{name}.code").write_text(str(code))

    def units(self, *units: dict[str, str]) -> None:
        usual = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running"}
        blocks = [
            "\n".join(f"{key}={value}" for key, value in {**usual, **unit}.items())
            for unit in units
        ]
        self.says("systemctl", "\n\n".join(blocks) + "\n")

    def calls(self) -> list[str]:
        file = self._folder / "calls"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return Host(tmp_path)


def rig(**options: Any) -> Rig:
    return Rig(Systemd(**options))


@pytest.fixture
def ahead() -> float:
    """The seconds by which the clock of the host is ahead of that of Redis."""
    return 0.0


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch, ahead: float) -> Rig:
    """A rig with a pattern, on a host with a clock of its own."""
    new_rig = rig(patterns=[REFUSED])
    monkeypatch.setattr(Journal, "now", lambda _: new_rig.clock.time.timestamp() + ahead)
    return new_rig


def line(cursor: str, at: float, message: Any, **more: str) -> str:
    raw = {"__CURSOR": cursor, "__REALTIME_TIMESTAMP": str(int(at * 1e6)), "MESSAGE": message}
    return json.dumps({**raw, **more}) + "\n"


def test_failed_units_are_reported_and_all_are_counted(host: Host) -> None:
    host.units(
        {"Id": "a.service"},
        {"Id": "b.service", "ActiveState": "failed", "Result": "exit-code"},
        {"Id": "c.service", "ActiveState": "failed", "Result": "signal"},
    )
    observations = rig(max_items=1).observe()

    assert data_of(observations, "unit") == [
        {"unit": "b.service", "trouble": "failed", "result": "exit-code", "host": "here"}
    ]
    assert data_of(observations, "units") == [
        {"units": 3, "failed": 2, "restarting": 0, "omitted": 1, "host": "here"}
    ]


def test_dependencies_between_units_are_reported_if_asked_for(host: Host) -> None:
    nothing = {"Requires": "", "Requisite": "", "BindsTo": ""}
    host.units(
        {**nothing, "Id": "shop.service", "Requires": "db.service sysinit.target"},
        {**nothing, "Id": "cart.service", "Requisite": "shop.service", "BindsTo": "db.service"},
        {**nothing, "Id": "db.service", "Requires": "system.slice"},
    )

    assert data_of(rig().observe(), "dependencies") == []
    [reported] = data_of(rig(dependencies=True).observe(), "dependencies")
    assert reported["dependsOn"] == {
        "shop.service/here": ["db.service/here"],
        "cart.service/here": ["db.service/here", "shop.service/here"],
    }


def test_a_restart_loop_is_reported_until_half_as_many_restarts_are_left(host: Host) -> None:
    watching = rig(restarts=4, restart_window=100)
    reports = []
    for count in (50, 53, 54, 54, 54, 0):
        host.units({"Id": "a.service", "NRestarts": str(count)})
        reports.append(bool(data_of(watching.observe(), "unit")))
        watching.clock.forward(40)

    assert reports == [False, False, True, True, False, False]


@pytest.mark.parametrize("counts", [(0, 4), (9, 4)], ids=["first restarts", "after a reset"])
def test_restarts_between_two_looks_are_a_loop(host: Host, counts: tuple[int, int]) -> None:
    watching = rig(restarts=4, restart_window=100)
    reports = []
    for count in counts:
        host.units({"Id": "a.service", "NRestarts": str(count)})
        reports.append(bool(data_of(watching.observe(), "unit")))
        watching.clock.forward(40)

    assert reports == [False, True]


def test_a_systemd_that_cannot_be_asked_is_an_error(host: Host) -> None:
    host.says("systemctl", "System has not been booted with systemd\n", 1)
    with pytest.raises(CommandFailed, match="not been booted"):
        rig().observe()


@pytest.mark.parametrize("ending", ["", "\n", "\n\n"])
def test_units_whose_beginning_was_cut_off_are_an_error(host: Host, ending: str) -> None:
    host.says("systemctl", "Description=" + "x" * MAX_BYTES + ending)
    with pytest.raises(CommandFailed, match="more than"):
        rig().observe()


def test_as_much_as_is_kept_is_read_in_full(host: Host) -> None:
    unit = "Id=a.service\nActiveState=failed\nDescription="
    host.says("systemctl", unit.ljust(MAX_BYTES - 1, "x") + "\n")
    assert data_of(rig().observe(), "units")[0]["failed"] == 1


@pytest.mark.parametrize(
    ("params", "unit", "error"),
    [
        ({"host": "there"}, {}, r"queue = 'host\.there'"),
        ({}, {"Id": "ssh.service"}, "not among the units"),
        ({}, {"LoadState": "not-found"}, "not-found on here"),
        ({}, {"RefuseManualStop": "yes"}, "RefuseManualStop"),
    ],
)
@pytest.mark.parametrize("function", ["execute", "dry_run"])
def test_restarting_a_unit_outside_the_options_is_refused(
    host: Host, params: dict[str, str], unit: dict[str, str], error: str, function: str
) -> None:
    host.units({"Id": "web.service", **unit})
    acting = rig(actions={"restart": {"units": ["web*"]}})
    with pytest.raises(Exception, match=error):
        acting.act("restart", {"unit": "web.service", **params}, function)
    assert not [call for call in host.calls() if call.startswith("restart")]


@pytest.mark.parametrize(
    ("restart", "unknown"),
    [("exec sleep 60", True), ("echo the unit took longer to start; exit 1", False)],
    ids=["out of time", "refused"],
)
def test_only_a_restart_that_was_out_of_time_may_still_happen(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restart: str, unknown: bool
) -> None:
    host.units({"Id": "web.service"})
    program = tmp_path / "systemctl"
    text = program.read_text()
    program.write_text(text.replace("\n", f'\ntest "$1" != restart || {{ {restart}; }}\n', 1))
    acting = rig(actions={"restart": {}})
    call = acting.plugin._systemctl.call  # type: ignore[attr-defined]
    monkeypatch.setattr(
        acting.plugin._systemctl,  # type: ignore[attr-defined]
        "call",
        lambda *words, timeout: call(*words, timeout=2.0 if words[0] == "restart" else timeout),
    )
    if unknown:
        assert acting.act("restart", {"unit": "web.service"}).unknown
    else:
        with pytest.raises(CommandFailed, match="took longer to start"):
            acting.act("restart", {"unit": "web.service"})


def test_only_a_failed_unit_is_reset(host: Host) -> None:
    host.units({"Id": "web.service"})
    with pytest.raises(ValueError, match="has not failed"):
        rig(actions={"reset_failed": {}}).act("reset_failed", {"unit": "web.service"})


@pytest.mark.parametrize(
    ("unit", "verdict"),
    [
        ({"InvocationID": "old"}, "no effect"),
        ({"ActiveState": "failed"}, "no effect"),
        ({"ActiveEnterTimestampMonotonic": "99999999999999"}, "no effect"),
        ({"ActiveEnterTimestampMonotonic": "1"}, "effective"),
        ({"ActiveState": "inactive", "Type": "oneshot", "Result": "success"}, "effective"),
    ],
    ids=["not started", "failed", "just active", "lasting", "has run"],
)
def test_a_restart_is_effective_once_another_invocation_lasts(
    host: Host, unit: dict[str, str], verdict: str
) -> None:
    host.units({"Id": "web.service", "InvocationID": "new", **unit})
    acting = rig(actions={"restart": {}})

    params = {"unit": "web.service"}
    assert acting.verify("restart", params, {"invocation": "old"}).verdict == verdict


def test_a_restart_whose_outcome_is_unknown_is_judged_by_the_invocation_before(host: Host) -> None:
    host.units({"Id": "web.service", "InvocationID": "old", "ActiveEnterTimestampMonotonic": "1"})
    acting = rig(actions={"restart": {}})
    params = {"unit": "web.service"}
    # Killed on its way: the unit was active before, and still is.
    lost = ActionResult(action="systemd:restart", success=False, duration=1, unknown=True)
    kept_action = uncertain("it hung", {"invocation": "old"})
    checks = [
        acting.act("restart", params, "verify", result=outcome) for outcome in (lost, kept_action)
    ]
    assert [check.verdict for check in checks] == ["cannot tell", "no effect"]


def test_a_unit_has_one_name_for_budgets(host: Host) -> None:
    assert UnitParams(unit="web").unit == UnitParams(unit="web.service").unit == "web.service"
    assert UnitParams(unit="web.v2").unit == "web.v2.service"
    host.units({"Id": "ssh.service"})
    with pytest.raises(LookupError, match=r"another name of ssh\.service"):
        rig(actions={"restart": {}}).act("restart", {"unit": "sshd"})


def test_slow_restarts_are_a_loop_however_often_one_looks(host: Host) -> None:
    watching = rig(restarts=3, restart_window=600)
    for minute in range(4):
        for _ in range(30):
            host.units({"Id": "a.service", "NRestarts": str(minute + 1)})
            data = data_of(watching.observe(), "unit")
            watching.clock.forward(5)
    assert [row["trouble"] for row in data] == ["restarts"]


def test_only_systemd_says_which_other_unit_a_message_is_about(host: Host) -> None:
    def units(user: bool, **fields: str) -> str:
        host.says("journalctl", line("c", 1, "x", **fields))
        [entry] = Journal(user=user, folder=None).after("c").entries
        return entry.unit

    claimed = {"UNIT": "web.service", "USER_UNIT": "web.service"}
    assert units(False, _PID="1", _SYSTEMD_UNIT="init.scope", **claimed) == "web.service"
    assert units(False, _PID="7", _SYSTEMD_UNIT="other.service", **claimed) == "other.service"
    of_user = {"_SYSTEMD_UNIT": "user@7.service", "_SYSTEMD_USER_UNIT": "web.service"}
    assert units(False, _PID="7", **of_user) == "user@7.service"
    assert units(True, _SYSTEMD_USER_UNIT="init.scope", **claimed) == "web.service"
    assert units(True, _SYSTEMD_USER_UNIT="own.service", **claimed) == "own.service"


def test_patterns_may_have_any_name_but_not_the_same(host: Host) -> None:
    pattern = {"name": "a|b", "contains": ["x"], "count": 2, "window": 60}
    watching = rig(patterns=[pattern])
    host.units()
    patterns = []
    for _ in range(3):
        host.says("journalctl", line("c", time.time(), "x", _SYSTEMD_UNIT="db.service"))
        patterns.append([row["pattern"] for row in data_of(watching.observe(), "pattern")])
    assert patterns == [[], [], ["a|b"]]
    with pytest.raises(PluginError, match="a name of its own"):
        rig(patterns=[pattern, pattern])


@pytest.mark.parametrize("ahead", [0.0, 7200.0, -7200.0])
def test_a_pattern_at_a_rate_is_reported_from_the_end_of_the_journal_on(
    host: Host, watching: Rig, ahead: float
) -> None:
    host.units()
    now = watching.clock.time.timestamp() + ahead
    host.says("journalctl", line("c0", now, "ERROR refused", _SYSTEMD_UNIT="old.service"))
    assert data_of(watching.observe(), "pattern") == []

    observations = []
    for count in (3, 1, 0, 0):
        bad = [
            line(
                f"c{n}",
                watching.clock.time.timestamp() + ahead,
                "ERROR: refused",
                _SYSTEMD_UNIT="db.service",
            )
            for n in range(count)
        ]
        host.says(
            "journalctl", "".join([*bad, line("other", now, "fine", _SYSTEMD_UNIT="db.service")])
        )
        observations.append(data_of(watching.observe(), "pattern"))
        watching.clock.forward(25)

    alarm = [{"unit": "db.service", "pattern": "refused", "host": "here"}]
    assert observations == [[], alarm, alarm, []]
    assert "--after-cursor=c0" in " ".join(host.calls())


def test_journal_lines_counted_by_another_worker_are_not_counted_again(host: Host) -> None:
    watching = rig(patterns=[{**REFUSED, "count": 2}])
    host.units()
    host.says("journalctl", line("c0", 0, "start"))
    watching.observe()
    before = watching.state.get("journal/here")
    now = time.time() // 1
    host.says("journalctl", line("c1", now, "ERROR refused", _SYSTEMD_UNIT="db.service"))
    watching.observe()
    watching.state.set("journal/here", before)
    watching.observe()

    assert watching.state.get("journal/here")["times"] == {"refused|db.service": [now]}


@pytest.mark.parametrize(
    ("output", "code", "error"),
    [
        ("Hint: You are currently not seeing messages from other users\n" + line("a", 1, "x"), 0,
         "not seeing messages"),
        ("No journal files were opened due to insufficient permissions.\n", 0, "insufficient"),
        ("Failed to seek\n", 1, "Failed to seek"),
        ("", 2, "code 2"),
    ],
)  # fmt: skip
def test_a_journal_that_cannot_be_read_in_full_is_an_error(
    host: Host, output: str, code: int, error: str
) -> None:
    host.says("journalctl", output, code)
    with pytest.raises(CommandFailed, match=error):
        Journal(user=False, folder=None).after("c")


def test_journal_entries_beyond_the_limit_are_left_for_the_next_read(host: Host) -> None:
    host.says("journalctl", "".join(line(f"c{n}", n, "x") for n in range(5)))
    reading = Journal(user=False, folder=None).after("c", most=3)
    assert (reading.behind, [entry.cursor for entry in reading.entries]) == (
        True,
        ["c0", "c1", "c2"],
    )


def test_a_journalctl_that_hangs_is_killed(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "READING", 0.2)
    (tmp_path / "journalctl").write_text("#!/bin/sh\nexec sleep 100\n")
    with pytest.raises(CommandFailed, match="took too long"):
        Journal(user=False, folder=None).after("c")


def test_an_entry_that_is_cut_off_is_left_for_the_next_read(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "READING", 0.5)
    host.says("journalctl", line("c1", 1, "x") + line("c2", 2, "x")[:-9])
    (tmp_path / "journalctl").write_text(f"#!/bin/sh\ncat {tmp_path}/journalctl.out\nsleep 100\n")
    reading = Journal(user=False, folder=None).after("c")

    assert (reading.behind, [entry.cursor for entry in reading.entries]) == (True, ["c1"])


def test_an_entry_of_any_size_hides_no_other(host: Host) -> None:
    lines = [line("c1", 1, "x" * (3 * journal.MAX_LINE)), line("c2", 2, "refused")]
    host.says("journalctl", "".join(lines))
    entries = Journal(user=False, folder=None).after("c").entries

    assert [entry.cursor for entry in entries] == ["c2"]


def test_messages_of_any_kind_are_read(host: Host) -> None:
    texts = [[72, 105, 255], ["two", [102, 255], None, "fields"], None, "x" * 9000]
    host.says("journalctl", "".join(line("c", 1, text) for text in texts))
    messages = [entry.message for entry in Journal(user=False, folder=None).after("c").entries]
    assert messages == ["Hi\ufffd", "two f\ufffd  fields", "", "x" * journal.MESSAGE]


def test_the_counts_of_patterns_are_bounded() -> None:
    counts = PatternCounts([JournalPattern(name="any", contains=["x"], count=3)], None)
    counts.add(JournalEntry("c", float(n), f"{n % 900}.service", "x") for n in range(9000))
    times_kept = counts.to_state()["times"]
    assert len(times_kept) == journal.MAX_COUNTED
    assert {len(times) for times in times_kept.values()} == {3}
