"""Which files of a folder of plugins are imported."""

from __future__ import annotations

import os
import py_compile
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from boyd.errors import PluginError
from boyd.models import digest_of
from boyd.plugin.discovery import find_plugin, import_object, version_of
from boyd.plugins.notifier import Notifier

PLUGIN = 'from boyd import Plugin\n\n\nclass One(Plugin):\n    id = "{id}"\n'


def test_only_the_file_that_names_a_plugin_is_imported(tmp_path: Path) -> None:
    (tmp_path / "wanted_one.py").write_text(PLUGIN.format(id="my_wanted"))
    (tmp_path / "other.py").write_text("raise RuntimeError('imported')\n")

    assert find_plugin("my-wanted", tmp_path).id == "my_wanted"
    assert find_plugin("notifier", tmp_path) is Notifier


def test_an_id_that_is_put_together_is_found_too(tmp_path: Path) -> None:
    (tmp_path / "joined.py").write_text(PLUGIN.format(id='put" "together'))

    assert find_plugin("puttogether", tmp_path).id == "puttogether"


def test_a_missing_plugin_is_reported_with_the_files_that_failed_to_import(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("raise RuntimeError('imported')\n")

    with pytest.raises(PluginError, match="imported"):
        find_plugin("nowhere-to-be-seen", tmp_path)


def test_a_class_without_an_id_is_named_when_none_has_the_one_sought(tmp_path: Path) -> None:
    (tmp_path / "disk.py").write_text(PLUGIN.format(id=""))

    with pytest.raises(PluginError, match=r"not found; .*; without an id: \w+ of disk\.py$"):
        find_plugin("disk", tmp_path)


@pytest.mark.parametrize(
    ("decorators", "message"),
    [
        (["@observer"], "disk.py line 4: write @observer(), with parenth"),
        (
            ["@action()", "def fill(self): pass", "@fill.verify"],
            "disk.py line 6: write @….verify(), with parenth",
        ),
    ],
)
def test_a_decorator_needs_parentheses(decorators: list[str], message: str, tmp_path: Path) -> None:
    text = 'from boyd import Plugin, action, observer\nclass Disk(Plugin):\n    id = "disk"\n'
    lines = [*decorators, "def usage(self): return []"]
    (tmp_path / "disk.py").write_text(text + "".join(f"    {line}\n" for line in lines))

    with pytest.raises(PluginError, match=re.escape(message)):
        find_plugin("disk", tmp_path)


@pytest.mark.parametrize(
    "copy", ["disk_old.py", "disk.sync-conflict-20261120-101500.py", "disk (copy).py"]
)
def test_two_files_with_one_id_are_an_error_that_names_both(tmp_path: Path, copy: str) -> None:
    for name in ("disk.py", copy):
        (tmp_path / name).write_text(PLUGIN.format(id="disk"))

    with pytest.raises(PluginError) as caught:
        find_plugin("disk", tmp_path)
    assert str(tmp_path / "disk.py") in str(caught.value)
    assert str(tmp_path / copy) in str(caught.value)


def test_a_file_does_not_take_the_place_of_a_built_in_plugin(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN.format(id="notifier"))

    with pytest.raises(PluginError, match=r"mine\.py has the id of an installed plugin"):
        find_plugin("notifier", tmp_path)


def test_hidden_files_and_folders_are_no_plugins(tmp_path: Path) -> None:
    (tmp_path / "disk.py").write_text(PLUGIN.format(id="disk"))
    (tmp_path / ".#disk.py").symlink_to("ann@host.4711:1764000000")
    (tmp_path / "._disk.py").write_bytes(b"\0\5\x16\7disk")
    (tmp_path / "old-disk.py").mkdir()

    assert find_plugin("disk", tmp_path).id == "disk"


def test_old_bytecode_of_a_file_with_the_same_size_and_time_is_not_run(tmp_path: Path) -> None:
    file = tmp_path / "disk.py"
    text = PLUGIN.format(id="disk") + "    edition = 1\n"
    file.write_text(text)
    os.utime(file, (1_700_000_000, 1_700_000_000))
    py_compile.compile(str(file))
    newer = text.replace("edition = 1", "edition = 2")
    file.write_text(newer)
    os.utime(file, (1_700_000_000, 1_700_000_000))
    plugin: Any = find_plugin("disk", tmp_path)
    file.write_text(text)

    assert plugin.edition == 2
    assert version_of(plugin()).digest == digest_of(newer)


def test_no_bytecode_of_plugins_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "disk.py").write_text(PLUGIN.format(id="disk"))
    find_plugin("disk", tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["disk.py"]


def test_agents_whose_files_have_one_name_keep_their_own_modules(tmp_path: Path) -> None:
    text = PLUGIN.format(id="disk")
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
        (folder / "disk.py").write_text(f"{text}\nFOLDER = '{folder.name}'\n")
    kinds = [find_plugin("disk", folder) for folder in folders]
    digests = [digest_of((folder / "disk.py").read_text()) for folder in folders]

    assert [version_of(kind()).digest for kind in kinds] == digests
    for folder in folders:
        find_plugin("disk", folder)
        assert import_object("boyd_plugin_disk:FOLDER") == folder.name
