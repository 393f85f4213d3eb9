"""Plugins, commands and pages can be imported where no extra is installed."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import packages_distributions, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

#: Hides the modules in its arguments, and loads every entry point.
_PROGRAM = """
import sys
from importlib.metadata import entry_points

class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hiding())
for group in ("boyd.plugins", "boyd.intakes", "boyd.commands", "boyd.pages", "boyd.secrets"):
    for point in entry_points(group=group):
        if point.dist.name == "boyd":
            point.load()
            print(point.name)
"""


def base_installation() -> set[str]:
    """The packages that `pip install boyd` installs."""
    packages, remaining = set(), {"boyd"}
    while remaining:
        package = remaining.pop()
        packages.add(package)
        for line in requires(package) or ():
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                remaining |= {canonicalize_name(need.name)} - packages
    return packages


@pytest.mark.long
def test_all_entry_points_load_without_the_extras() -> None:
    installed = base_installation()
    hidden = [
        module
        for module, owners in packages_distributions().items()
        if installed.isdisjoint(map(canonicalize_name, owners))
    ]
    assert {"mcp_types", "numpy", "psycopg", "dns"} <= set(hidden)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *hidden], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert {"mcp", "goals", "tls", "worker"} <= set(done.stdout.split())
