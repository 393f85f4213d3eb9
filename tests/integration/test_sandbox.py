"""Processes in a real sandbox try to get out of it."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from boyd.errors import Overrun
from boyd.models import LimitName, Sandbox
from boyd.sandbox import confined_call, host_means
from boyd.sandbox.confined_call import CannotConfine, ConfinedAnswer, Isolation
from plugin_kit import site

ROOT = Path(__file__).parents[2]
BOTH: tuple[Isolation, ...] = get_args(Isolation)
NOBODY = "nobody"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sandboxes import what the tests import."""
    folders = [str(ROOT / "tests"), str(ROOT / "shared"), sysconfig.get_path("purelib")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))
    monkeypatch.setenv("BOYD_REDIS_URL", "redis://:secret@nowhere")
    monkeypatch.setenv("DATABASE_URL", "postgres://app:secret@nowhere")


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> str:
    """A user that can read the interpreter."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for program in (sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}"):
        if Path(program).exists() and _may_run(program):
            monkeypatch.setattr(sys, "executable", program)
            return NOBODY
    pytest.skip("no interpreter that another user can run")


def _may_run(program: str) -> bool:
    line = [program, "-c", "import pydantic"]
    try:
        done = subprocess.run(line, user=NOBODY, check=False, capture_output=True, cwd="/")
    except OSError:
        return False
    return done.returncode == 0


@pytest.fixture
def page() -> Iterator[str]:
    """The host and port of a server on this machine."""
    with site() as served:
        served.body = b"hello"
        yield served.url.removeprefix("http://")


def attempt_escape(
    name: str, argument: str = "", isolation: Isolation = "bubblewrap", **limits: Any
) -> ConfinedAnswer:
    """The end of one of the escapes in a sandbox."""
    if isolation == "bubblewrap" and host_means.isolation() != "bubblewrap":
        pytest.skip("bubblewrap does not work here")
    function = f"agents.escapes:{name}"
    return confined_call.call(Sandbox(**limits), isolation, function, argument, 20.0)


def violation_limit(answer: ConfinedAnswer) -> LimitName | None:
    """The limit that was violated."""
    return answer.violation.limit if answer.violation else None


def test_it_has_no_rights_sees_no_others_and_knows_no_settings() -> None:
    data = json.loads(attempt_escape("about").answer or "")

    assert data["capabilities"].strip("0") == ""
    # The first process of its namespace, and itself.
    assert data["processes"] == 2
    assert data["secrets"] == []


@as_root
@pytest.mark.long
@pytest.mark.parametrize("isolation", BOTH)
def test_it_runs_as_its_own_user(nobody: str, isolation: Isolation) -> None:
    data = json.loads(attempt_escape("about", isolation=isolation, user=nobody).answer or "")

    assert data["uid"] == pwd.getpwnam(nobody).pw_uid
    assert data["capabilities"].strip("0") == ""


@pytest.mark.long
@pytest.mark.parametrize("isolation", BOTH)
def test_an_endless_loop_ends_with_its_cpu_time(isolation: Isolation) -> None:
    answer = attempt_escape("loop", isolation=isolation, cpu=1)

    assert (violation_limit(answer), answer.lost) == ("cpu", True)


def test_a_memory_hog_gets_no_more_than_its_memory() -> None:
    result = attempt_escape("hog", "1000000000", memory=500_000_000)

    assert (violation_limit(result), result.answer) == ("memory", None)


@as_root
@pytest.mark.long
@pytest.mark.parametrize("isolation", BOTH)
def test_a_fork_bomb_gets_no_more_than_its_processes(nobody: str, isolation: Isolation) -> None:
    # Limits of processes are those of a user: tests that run side by side have users of their own.
    user = {"bubblewrap": nobody, "kernel": "games"}[isolation]
    result = attempt_escape("bomb", isolation=isolation, user=user, processes=20)

    assert (violation_limit(result), result.answer) == ("processes", None)


@as_root
@pytest.mark.long
@pytest.mark.parametrize("isolation", BOTH)
def test_a_fork_bomb_of_a_shell_ends_with_its_sandbox(nobody: str, isolation: Isolation) -> None:
    if isolation == "bubblewrap" and host_means.isolation() != "bubblewrap":
        pytest.skip("bubblewrap does not work here")
    user = {"bubblewrap": "daemon", "kernel": "bin"}[isolation]
    sandbox = Sandbox(user=user, processes=20)
    bomb = "f() { f | f & }; f; wait; sleep 60"
    with pytest.raises(Overrun):
        confined_call.call(sandbox, isolation, "agents.escapes:bomb", bomb, 5.0)

    # Apart from those that have ended and were not waited for.
    left = ["pgrep", "-r", "DRST", "-u", str(pwd.getpwnam(user).pw_uid), "bash"]
    assert subprocess.run(left, check=False).returncode == 1


@pytest.mark.long
@pytest.mark.parametrize("isolation", BOTH)
@pytest.mark.parametrize("call", ["write", "write_elsewhere"])
def test_it_writes_in_its_folders_and_nowhere_else(
    tmp_path: Path, isolation: Isolation, call: str
) -> None:
    ours, other = tmp_path / "ours", tmp_path / "other"
    ours.mkdir()
    other.mkdir()
    inside = attempt_escape(call, str(ours / "file"), isolation, files=[str(ours)])
    outside = attempt_escape(call, str(other / "file"), isolation, files=[str(ours)])

    assert inside.answer in ("written", "0")
    assert (ours / "file").exists()
    assert not (other / "file").exists()
    assert outside.answer != inside.answer
    assert violation_limit(outside) == ("files" if call == "write" else None)


@pytest.mark.long
@pytest.mark.parametrize("isolation", BOTH)
def test_it_changes_no_attributes_outside_its_folders(tmp_path: Path, isolation: Isolation) -> None:
    other = tmp_path / "other"
    other.write_text("here")
    (tmp_path / "ours").mkdir()
    before = other.stat()
    attempt_escape("change", str(other), isolation, files=[str(tmp_path / "ours")])

    after = other.stat()
    assert (after.st_mode, after.st_mtime, after.st_size) == (
        before.st_mode,
        before.st_mtime,
        before.st_size,
    )


@pytest.mark.long
def test_no_file_grows_beyond_its_size() -> None:
    assert violation_limit(attempt_escape("fill", "5000000", file_size=1_000_000)) == "file size"
    assert attempt_escape("fill", "900000", file_size=1_000_000).answer == "written"


@pytest.mark.long
@pytest.mark.parametrize("isolation", BOTH)
def test_without_destinations_it_reaches_nothing(page: str, isolation: Isolation) -> None:
    assert attempt_escape("fetch", f"http://{page}/", isolation).answer is None
    refused = attempt_escape("fetch", "http://boyd.invalid/", isolation)
    assert violation_limit(refused) == "network"
    assert "boyd.invalid:80" in refused.error
    assert "connected" not in (attempt_escape("fetch_elsewhere", page, isolation).answer or "")


@pytest.mark.long
def test_it_reaches_its_destinations_and_no_others(page: str) -> None:
    port = page.rpartition(":")[2]
    network = [page, f"boyd-test.invalid:{port}"]

    assert attempt_escape("fetch", f"http://{page}/", network=network).answer == "hello"
    elsewhere = attempt_escape("fetch", "http://192.0.2.1/", network=network)
    assert violation_limit(elsewhere) == "network"
    assert "192.0.2.1:80 is not among the destinations" in elsewhere.error


@pytest.mark.long
def test_a_program_that_tries_another_address_is_noticed() -> None:
    result = attempt_escape("fetch_elsewhere", "192.0.2.1:80")

    assert "connected" not in (result.answer or "")
    assert violation_limit(result) == "network"


@pytest.mark.long
def test_any_network_is_reached_only_if_that_is_declared(page: str) -> None:
    assert attempt_escape("fetch", f"http://{page}/", network="any").answer == "hello"


@pytest.mark.long
@pytest.mark.parametrize("isolation", BOTH)
def test_nothing_that_it_leaves_lives_on(isolation: Isolation) -> None:
    assert attempt_escape("leave", isolation=isolation).answer == "left"

    assert subprocess.run(["pgrep", "-f", "sleep 1234"], check=False).returncode == 1


@pytest.mark.long
@pytest.mark.parametrize("isolation", BOTH)
def test_it_ends_no_process_outside(isolation: Isolation) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        result = attempt_escape("end", str(other.pid), isolation)
        assert other.poll() is None
        other.kill()

    assert result.answer is None


@pytest.mark.long
@pytest.mark.parametrize("isolation", BOTH)
def test_it_changes_no_process_outside_and_makes_no_namespace(isolation: Isolation) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        result = attempt_escape("harm", str(other.pid), isolation)
        other.kill()

    assert result.answer == "[]", result


@pytest.mark.long
@pytest.mark.parametrize("isolation", BOTH)
def test_files_left_in_the_working_folder_are_no_modules_of_the_next_action(
    isolation: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = str(tmp_path)
    assert attempt_escape("plant", folder, isolation, files=[folder]).answer == "planted"
    assert attempt_escape("planted", "", isolation, files=[folder]).answer == "no"


@pytest.mark.long
@pytest.mark.parametrize("isolation", BOTH)
def test_output_of_an_action_is_logged_under_its_name(
    isolation: Isolation, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        assert attempt_escape("forge", isolation=isolation).answer == "forged"

    printed = "printed by agents.escapes:forge: 2026-01-01 INFO boyd.worker: a forged line"
    assert printed in caplog.messages


@pytest.mark.long
@pytest.mark.parametrize("line", ["garbage", "[]", "{}garbage", '{"answer": 1}', "[" * 100_000])
def test_something_else_than_an_answer_leaves_open_what_it_did(line: str) -> None:
    result = attempt_escape("answer_by_hand", line, "kernel")

    assert (result.answer, result.lost) == (None, True)
    assert result.error.startswith("its process answered with something else than a result: ")


def test_an_answer_of_too_many_values_is_refused_unread() -> None:
    result = attempt_escape("answer_many", "[],", "kernel")

    assert (result.answer, result.lost) == (None, True)
    assert result.error.endswith("it has more than 500000 values")


@pytest.mark.long
def test_an_answer_that_is_too_long_is_refused_at_once() -> None:
    result = attempt_escape("answer_many", "seventeen letters", "kernel")

    assert (result.answer, result.lost) == (None, True)
    assert result.error == "its answer has more than 16000000 bytes"


# The means of this host


@pytest.mark.long
def test_a_sandbox_is_tried_out_before_an_action_relies_on_it(nobody: str, tmp_path: Path) -> None:
    assert host_means.find_limit_problem(Sandbox()) is None
    if os.geteuid() == 0:
        assert host_means.find_limit_problem(Sandbox(user=nobody, processes=10)) is None
        assert host_means.find_limit_problem(Sandbox(processes=10)) == (
            "`processes` does not limit root: set `user`"
        )
    assert "no such user" in (host_means.find_limit_problem(Sandbox(user="no-such-user")) or "")
    missing = host_means.find_limit_problem(Sandbox(files=[str(tmp_path / "missing")]))
    assert "does not exist" in (missing or "")


@pytest.mark.long
def test_a_limit_that_is_not_enforced_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_files(sandbox: Sandbox, *rest: Any) -> ConfinedAnswer:
        return confined_call.call(sandbox.patched({"files": ["/tmp"]}), *rest)

    monkeypatch.setattr(host_means, "call", without_files)
    missing = host_means.find_limit_problem(Sandbox(memory=900_000_000))

    assert missing == "`files` is not enforced: it writes in another folder"


def test_without_bubblewrap_what_needs_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_means, "_bubblewrap_problem", lambda: "`bwrap` is not installed")
    missing = host_means.find_limit_problem(
        Sandbox(network=["api.example.com:443"], memory=800_000_000)
    )

    assert missing == (
        "a list of destinations (`network`) needs bubblewrap: `bwrap` is not installed"
    )


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotConfine, match="does not exist"):
        attempt_escape("about", files=[str(tmp_path / "missing")])
