"""The examples of the migration pages: what they start from, and the agents that replace it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from boyd.agent import load_agent
from boyd.intake import IntakeRequest, parse_declared
from boyd.models import ProcedureRecord
from boyd.testing import Lab
from kit import overdue, pending_item, person

ROOT = Path(__file__).parents[3]
SOURCES = ("celery", "stackstorm", "rundeck")

Copy = Callable[[str], Path]


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copy:
    """Copies an example, as its README tells, and goes there."""

    def copy_example(source: str) -> Path:
        folder = tmp_path / source
        shutil.copytree(ROOT / "examples" / f"from-{source}", folder)
        monkeypatch.chdir(folder)
        return folder

    return copy_example


def approve(lab: Lab) -> None:
    """Approve what waits, and execute it."""
    lab.resolver.answer(pending_item(lab).id, "approved", person("ann"))
    lab.deliver()


def finish(lab: Lab) -> ProcedureRecord:
    """Let time pass until the procedure ends or is stopped; return it."""
    for _ in range(30):
        [record] = lab.store.procedures.all()
        due = lab.client.zrange(f"boyd:{{{lab.agent.id}}}:due", 0, -1)
        if record.state not in ("running", "compensating"):
            return record
        for name in due:
            if name.startswith(("procedure:", "target:", "verify:")):
                overdue(lab, name)
    raise AssertionError("the procedure does not end")


def test_the_agent_deletes_the_files_that_the_celery_tasks_delete(copy: Copy) -> None:
    folder = copy("celery")
    (folder / "spool").mkdir()

    def reject(*names: str) -> None:
        for age, name in enumerate(reversed(names)):
            file = folder / "spool" / f"{name}.rejected"
            file.touch()
            subprocess.run(["touch", "-d", f"@{1_000_000 - age}", str(file)], check=True)

    def remaining() -> list[str]:
        return sorted(file.stem for file in (folder / "spool").iterdir())

    reject("a", "b", "c", "d")
    eager = "import tasks; tasks.app.conf.task_always_eager = True; tasks.check_spool()"
    subprocess.run([sys.executable, "-c", eager], cwd=folder, check=True)
    assert remaining() == ["d"]

    reject("a", "b", "c", "d")
    lab = Lab(load_agent("agent.toml"))
    result = lab.run()
    assert result.situation is not None
    assert [anomaly.type for anomaly in result.situation.anomalies] == ["folder-full"]
    assert remaining() == ["a", "b", "c", "d"]
    approve(lab)
    assert remaining() == ["d"]
    assert lab.run().decision.is_no_op  # type: ignore[union-attr]


@pytest.fixture
def mail(copy: Copy) -> tuple[Path, Lab]:
    """The queue `outgoing` with two stuck messages, and the agent that replaces the pack."""
    queue = copy("stackstorm") / "spool" / "outgoing"
    for part in ("stuck", "ready"):
        (queue / part).mkdir(parents=True)
    for name in ("1", "2"):
        (queue / "stuck" / name).touch()
    return queue, Lab(load_agent("agent.toml"))


def send(lab: Lab, **message: str) -> None:
    """Send a message to the intake, as monitoring does to the webhook of the pack."""
    [intake] = lab.agent.settings.intakes
    body = json.dumps({"check": "queue-stuck", "level": "CRITICAL", "queue": "outgoing", **message})
    request = IntakeRequest(content_type="application/json", headers={}, body=body.encode())
    lab.intake(*parse_declared(intake, request))
    lab.deliver()


def test_the_rule_of_the_pack_runs_its_workflow_once_it_is_approved(mail: tuple[Path, Lab]) -> None:
    queue, lab = mail
    send(lab)
    assert len(list((queue / "stuck").iterdir())) == 2
    approve(lab)

    assert finish(lab).state == "succeeded"
    assert len(list((queue / "ready").iterdir())) == 2
    assert not (queue / "paused").exists()


@pytest.mark.parametrize("message", [{"check": "disk"}, {"level": "warning"}])
def test_a_message_that_does_not_fit_the_rule_proposes_nothing(
    mail: tuple[Path, Lab], message: dict[str, str]
) -> None:
    _, lab = mail
    send(lab, **message)

    assert lab.store.approvals.page(50).pending == []


def test_a_failed_step_of_the_workflow_resumes_the_queue(mail: tuple[Path, Lab]) -> None:
    queue, lab = mail
    shutil.rmtree(queue / "ready")
    (queue / "ready").touch()  # a file, into which nothing can be moved
    send(lab)
    approve(lab)

    assert finish(lab).state == "failed"
    assert not (queue / "paused").exists()


@pytest.fixture
def logs(copy: Copy) -> tuple[Path, Lab]:
    """Servers with a log each, and the agent that replaces the job."""
    servers = copy("rundeck") / "servers"
    for name in ("web1", "web2", "web3", "db1"):
        (servers / name).mkdir(parents=True)
        (servers / name / "access.log").write_text("GET /\n", encoding="utf-8")
    return servers, Lab(load_agent("agent.toml"))


def servers_with_old_logs(servers: Path) -> list[str]:
    return sorted(path.parent.name for path in servers.glob("*/access.log.*"))


def test_the_job_runs_on_the_nodes_of_its_filter(logs: tuple[Path, Lab]) -> None:
    servers, lab = logs
    lab.run()

    assert finish(lab).state == "succeeded"
    assert servers_with_old_logs(servers) == ["web1", "web2", "web3"]


def test_a_node_that_fails_stops_the_job_before_the_others(logs: tuple[Path, Lab]) -> None:
    servers, lab = logs
    (servers / "web1" / "access.log").unlink()
    lab.run()

    assert finish(lab).state == "stopped"
    assert servers_with_old_logs(servers) == []


def test_the_agent_of_the_job_has_its_schedule_option_and_threads() -> None:
    folder = ROOT / "examples" / "from-rundeck"
    [job] = yaml.safe_load((folder / "job.yaml").read_text("utf-8"))
    settings = load_agent(str(folder / "agent.toml")).settings
    procedure = settings.procedures["rotate"]

    seconds, minute, hour, *_ = job["schedule"]["crontab"].split()
    assert seconds == "0"
    assert [f"{minute} {hour} * * *"] == list(settings.schedule)
    assert list(procedure.params) == [option["name"] for option in job["options"]]
    assert procedure.steps[0].at_once == job["nodefilters"]["dispatch"]["threadcount"]


@pytest.mark.parametrize("source", SOURCES)
def test_the_page_shows_what_is_in_the_example(source: str) -> None:
    page = (ROOT / "docs" / f"migrate-from-{source}.md").read_text("utf-8")
    folder = ROOT / "examples" / f"from-{source}"
    files = [path.read_text("utf-8") for path in folder.rglob("*.*") if path.suffix != ".pyc"]
    blocks = re.findall(r"^```(?:toml|python|yaml)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)

    assert blocks
    for block in blocks:
        assert any(_normal(block) in _normal(text) for text in files), block


def _normal(text: str) -> str:
    """The lines, whatever their indentation, without blank ones and marks for the type checker."""
    lines = [line.partition("  # type: ignore")[0].strip() for line in text.splitlines()]
    return "\n".join(line for line in lines if line)
