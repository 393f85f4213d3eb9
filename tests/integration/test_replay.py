"""`boyd replay` and `boyd test` with their processes: confined, resumable, the same every time."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import fakeredis
import pytest
import yaml

from archive_kit import Archive, sqlite
from boyd import LoopResult
from boyd.agent import agent_from_file
from boyd.export.archive.access import ArchiveAccess
from boyd.export.archive.merged_work import MergedWork
from boyd.models.loop import HistoryFilter
from boyd.models.tape import ReplayedIteration, ReplayReport
from boyd.replay.recordings import (
    PORTION,
    Expectation,
    FileOfRecords,
    KeptIterations,
    ReplayCase,
    write_case,
)
from boyd.replay.replay_run import ReplayError, ShadowPool, replay, with_endings
from boyd.replay.shadow_process import ShadowTask
from boyd.testing import Lab
from harness import wait_until
from replay_kit import AGENT, PLUGIN, record, write_agent, write_records

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux confines")

WIDER = PLUGIN.replace('autonomy="approval-required"', "")


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[LoopResult]:
    """The recorded iterations of the agent."""
    return record(agent_from_file(write_agent(tmp_path_factory.mktemp("shop"))), 12)


class Place:
    """A folder with an agent and its records, where `boyd` runs."""

    def __init__(self, folder: Path, records: list[LoopResult], plugin: str = PLUGIN) -> None:
        self.folder = folder
        self.agent = write_agent(folder / "shop", plugin=plugin)
        self.records = write_records(folder / "records.jsonl", records)
        self.environment = {**os.environ, "BOYD_STATE_DIR": str(folder / "state")}

    def boyd(self, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """A running command."""
        return subprocess.Popen(
            [*prefix, sys.executable, "-m", "boyd_cli", *arguments],
            cwd=self.agent.parent,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def replay(self, *more: str, prefix: tuple[str, ...] = ()) -> tuple[int, str, str]:
        """The status and the output of a replay of its records."""
        process = self.boyd("replay", "--records", str(self.records), *more, prefix=prefix)
        out, errors = process.communicate(timeout=500)
        return process.returncode, out, errors


def acting(body: str, where: str = "        busy = load > LIMIT") -> str:
    """The plugin, with statements in its orienter that ignore what they raise."""
    lines = "".join(f"            {line}\n" for line in body.splitlines())
    return PLUGIN.replace(
        where, f"{where}\n        try:\n{lines}        except Exception:\n            pass", 1
    )


@pytest.mark.long
def test_an_unchanged_agent_exits_with_0_and_says_the_same_bytes_twice(
    tmp_path: Path, records: list[LoopResult]
) -> None:
    place = Place(tmp_path, records)
    first, second = (place.replay("-o", "json", "--jobs", jobs) for jobs in ("1", "2"))

    assert first == second
    assert first[0] == 0, first
    report = ReplayReport.from_json(first[1])
    assert (report.iterations, report.unchanged, report.findings) == (12, 12, [])
    assert {"landlock", "seccomp"} <= set(report.confined_by)


@pytest.mark.long
def test_a_closed_loop_goes_on_from_its_own_state_and_counts_where(
    tmp_path: Path, records: list[LoopResult]
) -> None:
    slowly = PLUGIN.replace("streak + 1 if busy else 0", "streak + 1 if busy else streak")
    place = Place(tmp_path, records, slowly.replace('known["busy"] and ', ""))
    first, second = (
        ReplayReport.from_json(place.replay("-o", "json", "--closed-loop", "--jobs", jobs)[1])
        for jobs in ("1", "4")
    )
    _, alone, _ = place.replay("-o", "json")

    assert first == second
    assert first.diverged > 0
    assert first.changes > ReplayReport.from_json(alone).changes
    assert "go on from state of their own" in place.replay("--closed-loop")[1]


@pytest.mark.long
def test_a_newly_automatic_action_exits_with_2(tmp_path: Path, records: list[LoopResult]) -> None:
    status, out, _ = Place(tmp_path, records, WIDER).replay()

    assert status == 2, out
    assert "newly automatic: " in out
    assert "automatic shop:scale" in out


@pytest.mark.long
def test_the_strict_default_fails_on_what_acts_less_and_names_it(
    tmp_path: Path, records: list[LoopResult]
) -> None:
    place = Place(tmp_path, records, PLUGIN.replace("in (1, 2)", "in (9,)"))
    status, out, errors = place.replay()

    assert status == 6, out
    assert "ACTS LESS" in out
    assert "fails: acts less in " in errors


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        ("none", 0),
        ("error,refused", 0),
        ("automatic", 2),
        ("asked, automatic>100%", 0),
        ("flipped,automatic>1%", 2),
        ("flipped", 6),
        ("flipped>99.9%", 0),
    ],
)
@pytest.mark.long
def test_the_differences_that_fail_a_replay_are_chosen(
    limits: str, status: int, tmp_path: Path, records: list[LoopResult]
) -> None:
    wider = WIDER.replace("in (1, 2)", "in (9,)")

    assert Place(tmp_path, records, wider).replay("--fail-on", limits)[0] == status


@pytest.mark.long
def test_an_agent_that_cannot_be_loaded_exits_with_1(
    tmp_path: Path, records: list[LoopResult]
) -> None:
    status, _, errors = Place(tmp_path, records, "raise RuntimeError('broken')").replay()

    assert status == 1
    assert "broken" in errors


@pytest.mark.long
def test_a_record_that_cannot_be_read_is_named(tmp_path: Path, records: list[LoopResult]) -> None:
    place = Place(tmp_path, records)
    with place.records.open("a") as file:
        file.write('{"iteration": 44}\n')
    status, _, errors = place.replay()

    assert status == 1
    assert "the record of iteration 44 cannot be read" in errors


# It cannot act


#: What plugins try in Python.
ATTEMPTS = [
    "open('WHERE/made', 'w').write('x')",
    "import os; os.unlink('WHERE/there')",
    "import os; os.rename('WHERE/there', 'WHERE/gone')",
    "import os; os.chmod('WHERE/there', 0o777)",
    "import os; os.mkdir('WHERE/folder')",
    "import subprocess; subprocess.run(['touch', 'WHERE/made'])",
    "import os; os.system('touch WHERE/made')",
    "import socket; socket.create_connection(('127.0.0.1', PORT))",
    "import socket; socket.socket(2, 2).sendto(b'x', ('127.0.0.1', PORT))",
    "import os; os.kill(PARENT, 12)",
]
#: What they try by the C library, which Python's audit hook does not see; -1 or 127: it failed.
NATIVE = [
    "open(b'WHERE/made', 0o101, 0o644)",
    "unlink(b'WHERE/there')",
    "rename(b'WHERE/there', b'WHERE/gone')",
    "chmod(b'WHERE/there', 0o777)",
    "mkdir(b'WHERE/folder', 0o777)",
    "system(b'touch WHERE/made') >> 8",
    "socket(2, 1, 0)",
    "socketpair(1, 1, 0, (ctypes.c_int * 2)())",
    "kill(PARENT, 12)",
]


#: Functions of the C library, looked up before anything is judged: later that is refused.
LIBRARY = """
import ctypes
C = ctypes.CDLL(None)
for name in "open unlink rename chmod mkdir system socket socketpair kill".split():
    getattr(C, name)
"""


def try_attempts(
    attempts: list[str], tmp_path: Path, records: list[LoopResult], prelude: str = ""
) -> list[ReplayedIteration]:
    """One iteration after each attempt; nothing has come of any of them."""
    where = tmp_path / "where"
    where.mkdir()
    (where / "there").write_text("x")
    before, received = snapshot(where), []
    old = signal.signal(signal.SIGUSR2, lambda number, _frame: received.append(number))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        names = {"WHERE": where, "PORT": listener.getsockname()[1], "PARENT": os.getpid()}
        source = repr(attempts)
        for name, value in names.items():
            source = source.replace(name, str(value))
        plugin = acting(f"exec({source}[ctx.iteration - 1])") + prelude
        place = Place(tmp_path, records, plugin)
        with ShadowPool(ShadowTask(agent=str(place.agent), paths=sys.path), 1) as pool:
            texts = place.records.read_text().splitlines()[: len(attempts)]
            reports = [report for portion in pool.judge([texts]) for report in portion]
        with pytest.raises(BlockingIOError):
            listener.accept()
    signal.signal(signal.SIGUSR2, old)
    assert (snapshot(where), received) == (before, [])
    return reports


def snapshot(folder: Path) -> list[tuple[str, int, int]]:
    return sorted(
        (str(path), path.stat().st_mode, path.stat().st_size) for path in folder.iterdir()
    )


def test_a_plugin_that_acts_is_stopped_and_its_iteration_cannot_be_judged(
    tmp_path: Path, records: list[LoopResult]
) -> None:
    for iteration in try_attempts(ATTEMPTS, tmp_path, records):
        assert iteration.differences == ["cannot tell"]
        assert iteration.why is not None
        assert iteration.why.startswith("a plugin tries ")


def test_a_plugin_that_acts_past_python_is_stopped_by_the_kernel(
    tmp_path: Path, records: list[LoopResult]
) -> None:
    # What succeeds reads something that was not recorded, so that it is seen here.
    attempts = [f"if C.{call} not in (-1, 127): ctx.state.get('succeeded')" for call in NATIVE]
    iterations = try_attempts(attempts, tmp_path, records, LIBRARY)

    assert [(iteration.differences, iteration.why) for iteration in iterations] == [
        ([], None)
    ] * len(NATIVE)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is missing")
def test_no_process_of_a_replay_writes_connects_or_starts_a_program(
    tmp_path: Path, records: list[LoopResult]
) -> None:
    calls = "trace=network,execve,kill,openat,open,unlink,rename,mkdir"
    trace = tmp_path / "trace"
    tries = acting("C.system(b'true')") + LIBRARY
    place = Place(tmp_path, records, tries)
    task = ShadowTask(agent=str(place.agent), paths=sys.path).to_json()
    text = place.records.read_text().splitlines()[0]
    text_in = f"{task}\n1\n{text}\n"
    process = [sys.executable, "-P", "-m", "boyd.replay.shadow_process"]
    command = ["strace", "-f", "-qq", "-e", calls, "-o", str(trace), *process]
    done = subprocess.run(command, input=text_in, text=True, stdout=subprocess.PIPE, timeout=500)
    lines = trace.read_text().splitlines()
    confined = next(number for number, line in enumerate(lines) if "EACCES" in line)
    writing = ("O_WRONLY", "O_RDWR", "O_CREAT", "socket(", "execve(", "kill(", "rename", "mkdir")
    after = [line for line in lines[confined:] if any(call in line for call in writing)]

    assert len(done.stdout.splitlines()) == 2
    assert [line for line in after if "EACCES" not in line] == []


@pytest.mark.long
def test_an_agent_that_acts_when_it_is_loaded_is_refused(
    tmp_path: Path, records: list[LoopResult]
) -> None:
    place = Place(tmp_path, records, PLUGIN + "\nopen('made', 'w')\n")
    with pytest.raises(ReplayError, match="tries to write 'made'"):
        ShadowPool(ShadowTask(agent=str(place.agent), paths=sys.path), 1)


@pytest.mark.long
def test_a_file_that_a_plugin_reads_was_not_recorded(
    tmp_path: Path, records: list[LoopResult]
) -> None:
    (tmp_path / "limits.txt").write_text("60")
    place = Place(tmp_path, records, acting(f"open('{tmp_path}/limits.txt').read()"))
    _, out, _ = place.replay()

    assert "reads the file" in out
    assert "12" in out


# It goes on where it was interrupted


@pytest.mark.long
def test_a_killed_replay_goes_on_and_says_the_same(
    tmp_path: Path, records: list[LoopResult]
) -> None:
    slow = PLUGIN.replace("at = ctx.now()", "import time; time.sleep(0.05); at = ctx.now()")
    many = [
        past_iteration.patched({"iteration": number, "id": f"shop:{number}"})
        for number in range(1, 4 * PORTION)
        for past_iteration in [records[number % len(records)]]
    ]
    place = Place(tmp_path, many, slow)
    process = place.boyd("replay", "--records", str(place.records), "--jobs", "1")
    folder = tmp_path / "state" / "replay"
    wait_until(lambda: len(list(folder.glob("*/*.jsonl"))) >= 2, 60)
    process.kill()
    process.communicate()
    done = {path: path.stat().st_mtime_ns for path in folder.glob("*/*.jsonl")}
    later = place.boyd("replay", "--records", str(place.records), "-o", "json", "--jobs", "1")
    wait_until(lambda: len(list(folder.glob("*/*.jsonl"))) > len(done), 60)
    assert {path: path.stat().st_mtime_ns for path in done} == done
    out, _ = later.communicate(timeout=120)

    assert ReplayReport.from_json(out).iterations == len(many)
    assert list(folder.glob("*/*.jsonl")) == []


@pytest.mark.long
def test_a_plugin_that_ends_its_process_ends_the_replay_with_a_reason(
    tmp_path: Path, records: list[LoopResult]
) -> None:
    ends = "import os\nprint('out of patience', flush=True)\nos._exit(3)"
    status, _, errors = Place(tmp_path, records, acting(ends)).replay()

    assert status == 1
    assert "ended with status 3" in errors
    assert "\n  out of patience" in errors


@pytest.mark.long
@pytest.mark.parametrize(("begins", "over"), [("20200101", True), ("20000101", False)])
def test_change_freezes_apply_as_they_did(tmp_path: Path, begins: str, over: bool) -> None:
    event = f"BEGIN:VEVENT\nUID:1\nDTSTAMP:{begins}T000000Z\nDTSTART:{begins}T000000Z\n"
    until = "20200102" if over else "21000102"
    rest = f"DTEND:{until}T000000Z\nSUMMARY:fair\nEND:VEVENT\n"
    calendar = f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:x\n{event}{rest}END:VCALENDAR\n"
    window = '\n[[windows]]\nname = "freezes"\nfreezes = "freezes.ics"\n'
    place = Place(tmp_path, [])
    (place.agent.parent / "freezes.ics").write_text(calendar.replace("\n", "\r\n"))
    place.agent.write_text(place.agent.read_text() + window)
    lab = Lab(agent_from_file(place.agent))
    place.records.write_text("".join(f"{lab.run().to_json()}\n" for _ in range(3)))
    status, out, errors = place.replay("-o", "json")

    assert status == 0, errors
    report = ReplayReport.from_json(out)
    assert (report.iterations, report.unchanged, report.findings) == (3, 3, [])


# Its sources


@pytest.mark.long
def test_archive_and_redis_are_one_past_and_approvals_say_how_they_ended(tmp_path: Path) -> None:
    path = write_agent(tmp_path / "shop")
    lab = Lab(agent_from_file(path), client=fakeredis.FakeRedis(decode_responses=True))
    for _ in range(5):
        lab.run()
    archive = Archive(sqlite(tmp_path), lab.whole)
    lab.whole.seal(["shop"])
    archive.copier.copy("shop", completely=True)
    lab.client.delete("boyd:{shop}:iteration:1")
    lab.client.zrem("boyd:{shop}:history", "1")
    for _ in range(2):
        lab.run()
    access = ArchiveAccess(archive.url)
    store = lab.whole.agent("shop")
    task = ShadowTask(agent=str(write_agent(tmp_path / "wider", plugin=WIDER)), paths=sys.path)

    def count(query: HistoryFilter, first: int = 1) -> int:
        return KeptIterations(store, access, query, lambda number: number >= first).count

    past = KeptIterations(store, access, HistoryFilter(), lambda _number: True)
    with ShadowPool(task, 1) as pool:
        report = replay(pool, past, tmp_path / "state", lambda _count: None)
        report = with_endings(report, MergedWork(store, access))

    assert (past.count, report.iterations) == (7, 7)
    assert (report.first or "").startswith("shop:1")
    assert all("pending" in finding.ended for finding in report.findings)
    assert count(HistoryFilter(), first=4) == 4
    last = store.history.get(7)
    assert last is not None
    assert count(HistoryFilter(since=last.ended_at)) == 1
    assert count(HistoryFilter(until=last.ended_at)) == 6
    access.close()
    archive.close()
    access.close()
    archive.close()


# Cases


@pytest.mark.long
def test_cases_pass_while_the_agent_decides_rightly_and_say_what_is_different(
    tmp_path: Path, records: list[LoopResult]
) -> None:
    place = Place(tmp_path, records)
    cases = place.agent.parent / "cases"
    for past_iteration in records:
        assert past_iteration.decision is not None
        expect = Expectation(action=past_iteration.decision.action)
        if not (past_iteration.trace and past_iteration.trace.vetoed):
            write_case(
                cases,
                f"case-{past_iteration.iteration}",
                ReplayCase(expect=expect, record=past_iteration),
            )
    fine = place.boyd("test")
    out, errors = fine.communicate(timeout=120)
    assert fine.returncode == 0, (out, errors)

    first = min(cases.glob("*.yaml"))
    edited = yaml.safe_load(first.read_text())
    edited["expect"] = {"action": "shop:other", "fate": "automatic"}
    first.write_text(yaml.safe_dump(edited))
    broken = place.boyd("test", "-o", "json")
    out, _ = broken.communicate(timeout=120)

    assert broken.returncode == 1
    failed = [case for case in json.loads(out) if case["mistakes"]]
    assert [case["case"] for case in failed] == [first.stem]
    assert failed[0]["mistakes"][0].startswith("action: expected shop:other, got ")


# Thousands of iterations


@pytest.mark.long
def test_thousands_of_iterations_of_an_unchanged_agent_have_no_difference(
    tmp_path: Path,
) -> None:
    recorded = record(agent_from_file(write_agent(tmp_path / "then")), 500)
    many = [
        past_iteration.patched({"iteration": number, "id": f"shop:{number}"})
        for number in range(1, 2001)
        for past_iteration in [recorded[number % len(recorded)]]
    ]
    place = Place(tmp_path, many)
    first, second = (place.replay("-o", "json") for _ in range(2))

    assert first == second
    report = ReplayReport.from_json(first[1])
    assert (report.iterations, report.unchanged) == (2000, 2000)
    assert FileOfRecords(place.records, lambda _number: True).count == 2000
    assert AGENT in place.agent.read_text()
