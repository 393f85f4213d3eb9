"""A process imports no package that it never uses, which would cost it memory and time."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

#: Packages that some process needs, and most do not.
HEAVY = {
    *("alembic", "apprise", "authlib", "celery", "cryptography.x509", "flask", "httpx2"),
    *("jsonschema", "kombu", "numpy", "prompt_toolkit", "pygments", "requests", "rich"),
    *("sqlalchemy", "waitress", "werkzeug"),
}
#: What the command of a process imports, and which of those packages it needs for that.
PROCESSES = {
    "worker": (["boyd_worker.worker", "celery.worker.consumer"], {"celery", "kombu"}),
    "beat": (["boyd_worker.beat"], {"celery", "kombu"}),
    "api": (
        [
            *("boyd_api.app", "boyd_api.http.server"),
            *(point.module for point in entry_points(group="boyd.pages")),
        ],
        {"flask", "waitress", "werkzeug"},
    ),
    "archive": (["boyd.export.archive.copier", "boyd.export.archive.database"], {"sqlalchemy"}),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_imports_no_package_that_it_does_not_use(name: str) -> None:
    modules, needs = PROCESSES[name]
    program = (
        "import importlib, sys\n"
        "from boyd.settings.process_settings import load_settings\n"
        f"for name in {['boyd_cli.group', *modules]}: importlib.import_module(name)\n"
        "load_settings()\n"
        "print(*sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True
    )
    assert HEAVY & set(done.stdout.split()) == needs


@pytest.mark.long
def test_an_archive_loads_the_migrations_only_for_tables_that_are_not_current(
    tmp_path: Path,
) -> None:
    program = (
        "import sys\n"
        "from boyd.export.archive.database import Database\n"
        f"Database('sqlite:///{tmp_path}/archive.db', writes=True).upgrade()\n"
        "sys.exit('alembic' in sys.modules)\n"
    )
    command = [sys.executable, "-P", "-c", program]

    assert [subprocess.run(command).returncode for _ in range(2)] == [1, 0]
