"""The processes of docs/operations.md run as it says, and what its blocks are run by."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from archive_kit import sqlite
from boyd.store import connect
from cli_kit import Cli
from guide_kit import Guide, shows, steps
from harness import Deployment, wait_until
from redis_kit import RedisServer

GUIDE = Guide("operations.md")
_CELERY = "tests/integration/test_celery_tools.py::test_"
_DOCTOR = (
    "tests/integration/test_operations_guide.py::test_the_doctor_sees_the_processes_of_the_page"
)
_WALK = "the walk of tests/integration/test_guided_deployment.py"
_UPGRADE = "tests/unit/cli/test_upgrade_command.py::test_the_page_shows_an_upgrade_under_way"
#: Every block of the page, and what runs it.
RUNS = {
    ("Several hosts", "boyd worker"): _DOCTOR,
    ("The doctor", "boyd doctor"): _DOCTOR,
    ("Grafana", "install -d"): _WALK,
    ("Celery's own tools", "flower"): f"{_CELERY}inspect_events_and_flower_show_workers_and_tasks",
    (
        "Celery's own tools",
        "exporter",
    ): f"{_CELERY}celery_exporter_is_the_one_that_the_page_installs_and_runs",
    ("Upgrade and roll back", "--check"): _UPGRADE,
    ("Upgrade and roll back", "acl load"): _WALK,
}


def test_something_runs_every_block_of_the_page() -> None:
    GUIDE.check_runs(RUNS)


@pytest.mark.real
@pytest.mark.long
def test_the_doctor_sees_the_processes_of_the_page(redis_server: str, tmp_path: Path) -> None:
    exports, _, lines = GUIDE.block("Several hosts").partition("\n\n")
    kinds = [shlex.split(line, comments=True)[1:] for line in lines.splitlines()]
    options = ("--appendonly", "yes", "--maxmemory-policy", "allkeys-lru")
    with RedisServer(tmp_path, *options) as server:
        with connect(server.url) as client:
            client.config_set("requirepass", "password")
        (tmp_path / "agent.toml").write_text('id = "watch"\nmode = "continuous"\n')
        site = exports.replace("redis.example:6379", f"127.0.0.1:{server.port}")
        around = dict(
            line.removeprefix("export ").split("=", 1)
            for line in site.replace("/etc/boyd", str(tmp_path)).splitlines()
        )
        around |= {"BOYD_WORKER__HOST": "vm", "BOYD_ARCHIVE_URL": sqlite(tmp_path)}
        cli = Cli(tmp_path, **around)
        [(command, example)] = steps(GUIDE.block("The doctor"))
        with Deployment(around["BOYD_REDIS_URL"], tmp_path) as deployment:
            deployment.environment |= {**around, "BOYD_API__PORT": "0"}
            for kind in kinds:
                if kind != ["beat"]:
                    name = "-".join(kind)
                    deployment.start(name, *kind, ready=kind[0] == "worker")
            wait_until(lambda: shows(cli.result(*command.split()[1:]).output, example))

            deployment.start("beat", "beat")

            wait_until(lambda: cli.result("doctor").exit_code == 0)
            wait_until(lambda: "API on" in deployment.log("api"))
