"""Which files of a folder of plugins are imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from boyd.errors import PluginError
from boyd.plugin.discovery import find_plugin
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


def test_a_file_that_cannot_be_imported_is_told_when_a_plugin_is_missing(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("raise RuntimeError('imported')\n")

    with pytest.raises(PluginError, match="imported"):
        find_plugin("nowhere-to-be-seen", tmp_path)
