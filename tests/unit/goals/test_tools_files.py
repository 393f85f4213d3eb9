"""Files below the allowed folders, and nothing else."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from boyd.models import Decision
from boyd_goals.library import MOST, Files
from goals_kit import Mind

#: Errors about a link on the way, and about anything that is not a file.
ANY_LINK = "symbolic links|Not a directory"
ANY = ANY_LINK + "|not a regular file|No such device|Is a directory"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("hello")
    (tmp_path / "secret.txt").write_text("secret")
    return folder


def test_a_file_is_read_by_its_relative_and_its_absolute_path(root: Path) -> None:
    files = Files([root])

    assert files.read("a.txt") == files.read(str(root / "a.txt")) == "hello"
    assert files.names(".") == ["a.txt", "sub"]


def test_a_folder_that_is_named_by_a_link_is_allowed(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)

    assert Files([link]).read(str(link / "a.txt")) == "hello"
    assert Files([link]).read(str(root / "a.txt")) == "hello"


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "sub/../../secret.txt", "/etc/passwd", "{outside}", "a\0b", "{root}x/a.txt"],
)
def test_paths_outside_the_roots_are_refused(path: str, root: Path, tmp_path: Path) -> None:
    file = path.format(outside=tmp_path / "secret.txt", root=root)
    files = Files([root])

    assert not files.allows(file)
    with pytest.raises(ValueError, match=r"is in none|must not contain|null"):
        files.read(file)
    with pytest.raises(ValueError, match=r"is in none|must not contain|null"):
        files.write(file, "x")


def test_without_a_folder_nothing_is_allowed() -> None:
    with pytest.raises(ValueError, match="roots"):
        Files([]).read("a.txt")


def test_links_are_not_followed_anywhere_on_the_way(root: Path, tmp_path: Path) -> None:
    (root / "file").symlink_to(tmp_path / "secret.txt")
    (root / "out").symlink_to(tmp_path)
    files = Files([root])

    for path in ("file", "out/secret.txt"):
        with pytest.raises(OSError, match=ANY_LINK):
            files.read(path)
    for path in ("file", "out/new.txt"):
        with pytest.raises((OSError, ValueError), match=ANY):
            files.write(path, "x")
    with pytest.raises(OSError, match=ANY_LINK):
        files.names("out")
    assert (tmp_path / "secret.txt").read_text() == "secret"
    assert not (tmp_path / "new.txt").exists()


def test_a_file_that_has_another_name_elsewhere_is_not_read(root: Path, tmp_path: Path) -> None:
    (root / "file").hardlink_to(tmp_path / "secret.txt")

    with pytest.raises(ValueError, match="hard links"):
        Files([root]).read("file")


def test_a_folder_that_turns_into_a_link_meanwhile_leads_nowhere(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "sub" / "secret.txt").write_text("ours")
    real = os.open

    def swapping(path: str, flags: int, *args: int, dir_fd: int | None = None) -> int:
        if path == "sub":
            (root / "sub").rename(tmp_path / "moved")
            (root / "sub").symlink_to(tmp_path)
        return real(path, flags, *args, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swapping)
    with pytest.raises(OSError, match=ANY_LINK):
        Files([root]).read("sub/secret.txt")


def test_pipes_sockets_and_folders_are_no_files_and_nobody_waits_for_them(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(root)
        try:
            listening.bind("socket")
        finally:
            os.chdir(here)
    for name in ("pipe", "socket", "sub"):
        with pytest.raises((OSError, ValueError), match=ANY):
            Files([root]).read(name)
        with pytest.raises((OSError, ValueError), match=ANY):
            Files([root]).write(name, "x")
    assert sorted(path.name for path in root.iterdir()) == ["a.txt", "pipe", "socket", "sub"]


def test_devices_are_no_files() -> None:
    with pytest.raises(ValueError, match="not a regular file"):
        Files([Path("/dev")]).read("zero")


def open_below(root: Path) -> list[str]:
    """The files and folders below *root* that this process has open."""
    paths = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    return [path for path in paths if Path(path).is_relative_to(root.resolve())]


def test_no_descriptor_is_left_open_whatever_happens(root: Path) -> None:
    files = Files([root])
    with (root / "a.txt").open():
        assert open_below(root) == [str((root / "a.txt").resolve())]
    for path in ("a.txt", "sub", "missing/x", "missing", ".", "sub/x/y"):
        for act in (files.read, files.names, lambda file: files.write(file, "text")):
            try:
                act(path)
            except (OSError, ValueError):
                continue

    assert open_below(root) == []


def test_of_a_long_file_the_beginning_is_read(root: Path) -> None:
    (root / "long").write_bytes(b"x" * (MOST + 10))
    text = Files([root]).read("long")

    assert text == "x" * MOST + "\n[the rest is left out]"


def test_a_text_that_is_too_long_is_not_written(root: Path) -> None:
    with pytest.raises(ValueError, match="more than"):
        Files([root]).write("a.txt", "x" * (MOST + 1))
    assert (root / "a.txt").read_text() == "hello"


def test_a_file_is_replaced_and_keeps_its_permissions(root: Path) -> None:
    (root / "a.txt").chmod(0o640)

    assert Files([root]).write("a.txt", "grüße") == 7
    assert (root / "a.txt").read_text() == "grüße"
    assert (root / "a.txt").stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in root.iterdir()) == ["a.txt", "sub"]


def test_a_write_that_fails_leaves_everything_as_it_was(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="disk full"):
        Files([root]).write("a.txt", "new")
    assert sorted(path.name for path in root.iterdir()) == ["a.txt", "sub"]
    assert (root / "a.txt").read_text() == "hello"


def test_many_may_write_the_same_file_at_once(root: Path) -> None:
    errors: list[Exception] = []

    def write(number: int) -> None:
        try:
            Files([root]).write("a.txt", f"{number}" * 1000)
        except Exception as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert len(set((root / "a.txt").read_text())) == 1


def test_file_names_that_are_not_utf8_are_listed(root: Path) -> None:
    (root / os.fsdecode(b"\xff.bin")).write_text("")

    assert "\ufffd.bin" in Files([root]).names(".")


@pytest.fixture
def mind(root: Path) -> Mind:
    return Mind(roots=[root])


def test_to_write_a_file_a_person_is_asked(mind: Mind, root: Path) -> None:
    file_io = mind.lab.agent.host.actions["goals:file_io"]
    decision = Decision(
        action=file_io.id,
        params={"action": "write", "path": "a.txt", "content": "x"},
        rationale="because",
        confidence=1.0,
    )

    assert mind.plugin.on_decide(decision, file_io) == {"requires_approval": True}
    assert mind.plugin.on_decide(decision.patched({"params": {"path": "a.txt"}}), file_io) is None


def test_a_goal_that_names_a_file_reads_it(mind: Mind, root: Path) -> None:
    (root / "report.txt").write_text("the unicorn habitat")
    mind.goal("read the text data of the file report.txt.", criteria="unicorn habitat")
    results = [mind.cycle() for _ in range(3)]
    done = [result.decision.params for result in results if result.decision is not None]

    assert {"action": "read", "path": "report.txt"} in done
    assert [goal.status for goal in mind.session.goals.values()] == ["Completed"]


def test_a_file_that_may_not_be_read_is_not_tried() -> None:
    mind = Mind()
    goal = mind.goal("read the text data of the file report.txt", criteria="unicorn habitat")
    for _ in range(4):
        result = mind.cycle()
        assert result.decision is not None
        assert result.decision.action != "goals:file_io"

    assert mind.session.goals[goal].failed_plans == 0
