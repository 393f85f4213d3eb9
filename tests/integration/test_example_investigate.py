"""`examples/investigate` with real processes: a courier is killed, and what comes of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from boyd.models import ApprovalItem, JsonObject
from boyd.models.investigation import Investigation
from boyd.store import AgentStore
from cli_kit import Cli
from harness import Deployment, free_port, wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "examples" / "investigate"
PROGRAMS = ("shop", "courier", "model")


class Site:
    """The agent at work, its shop, and somebody at a terminal."""

    def __init__(self, deployment: Deployment, folder: Path) -> None:
        shop, model = str(free_port()), str(free_port())
        deployment.environment |= {
            "XDG_STATE_HOME": str(folder),
            "SHOP_PORT": shop,
            "MODEL_PORT": model,
        }
        self.folder = folder / "boyd-investigate"
        self.url = f"http://127.0.0.1:{shop}"
        self.store: AgentStore = deployment.agent("investigate")
        agent = str(_copy(folder / "example", shop, model))
        deployment.worker("worker", agent)
        deployment.beat("beat", agent)
        url = deployment.api("api")
        key = deployment.key("ann", "read", "runs", "approvals")["Authorization"].split()[1]
        self.boyd = Cli(folder, BOYD_URL=url, BOYD_API_KEY=key)

    def pid(self, name: str) -> int | None:
        """The process of a program that has been started."""
        with contextlib.suppress(FileNotFoundError, IndexError):
            return int((self.folder / f"{name}.pid").read_text().split()[0])
        return None

    def log(self, name: str) -> str:
        """The log of a program."""
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def is_open(self) -> bool:
        """Check that all programs are at work."""
        return all(
            word in self.log(name)
            for name, word in (("shop", "is open"), ("courier", "holds"), ("model", "answers"))
        )

    def health(self) -> int:
        """The status code of the shop."""
        return requests.get(f"{self.url}/health", timeout=60).status_code

    def order(self) -> int:
        """Order something; what the shop answers."""
        return requests.post(f"{self.url}/orders", data=b"{}", timeout=60).status_code

    def proposal(self) -> ApprovalItem | None:
        """The pending approval, if there is one."""
        pending = self.store.approvals.page(10).pending
        return pending[0] if pending else None

    def investigation(self) -> Investigation:
        """The one that the agent has begun by itself."""
        investigations = self.store.investigations.page(10).investigations
        return next(record for record in investigations if record.source == "plugin:investigation")

    def evidence(self) -> JsonObject | None:
        """The assessment of the investigator in some situation, if there is one."""
        id = self.investigation().id
        for result in self.store.history.results(50):
            findings = result.situation and result.situation.evidence("investigation:investigate")
            if findings and (findings.get("status"), findings.get("investigation")) == (
                "ended",
                id,
            ):
                return dict(findings)
        return None

    def close(self) -> None:
        """End the programs, which outlive their agent."""
        for name in PROGRAMS:
            pid = self.pid(name)
            with contextlib.suppress(psutil.NoSuchProcess):
                if pid and str(self.folder) in " ".join(psutil.Process(pid).cmdline()):
                    os.kill(pid, signal.SIGKILL)


def _copy(target: Path, shop: str, model: str) -> Path:
    """The example with other ports and at a quicker pace."""
    shutil.copytree(EXAMPLE, target)
    path = target / "agent.toml"
    text = path.read_text().replace(":8766/", f":{shop}/").replace(":8767/", f":{model}/")
    path.write_text(text.replace("interval = 2", "interval = 0.5"))
    return path


@pytest.fixture
def site(deployment: Deployment, tmp_path: Path) -> Iterator[Site]:
    """A shop that is well."""
    new_site = Site(deployment, tmp_path)
    try:
        wait_until(new_site.is_open, 60)
        wait_until(lambda: new_site.health() == 200)
        yield new_site
    finally:
        new_site.close()


@pytest.fixture
def dead_courier(site: Site) -> int:
    """The courier that was killed; the next one waits for its lock, and the outbox is full."""
    pid = site.pid("courier")
    assert pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: f"which process {pid} holds" in site.log("courier"), 30)
    wait_until(lambda: site.order() == 503)
    return pid


@pytest.mark.long
def test_the_cause_is_found_the_fix_is_approved_and_the_shop_recovers(
    site: Site, dead_courier: int
) -> None:
    lock = str(site.folder / "courier.lock")
    item: ApprovalItem = wait_until(site.proposal, 30)
    assert item.action_id == "shop:remove_lock"
    assert (item.params["path"], item.params["pid"]) == (lock, dead_courier)
    assert str(dead_courier) in str(item.params["reason"])
    wait_until(lambda: site.investigation().status == "waiting")
    assert Path(lock).exists()

    process = site.boyd.process("ask", "Why does the shop answer 503?")
    assert process.returncode == 0, process.stderr
    assert f"courier.lock was left behind by process {dead_courier}" in process.stdout
    assert f"Remove {lock}" in process.stdout

    assert site.health() == 503
    approved: Any = site.boyd.json("approvals", "approve", "--yes", item.id)
    assert approved["success"]
    wait_until(lambda: site.health() == 200)
    wait_until(lambda: site.investigation().status == "ended")
    record = site.investigation()
    assert (record.ending, record.counters.errors) == ("final_answer", 0)
    evidence = wait_until(site.evidence)
    assert f"left behind by process {dead_courier}" in evidence["rootCause"]
    assert "orders are taken again" in evidence["impact"]
    assert evidence["affected"] == ["shop", "courier"]
    assert "The shop answers 200" in json.dumps(evidence["findings"])


@pytest.mark.long
def test_a_denied_action_is_not_executed_and_the_answer_says_so(
    site: Site, dead_courier: int
) -> None:
    item: ApprovalItem = wait_until(site.proposal, 30)
    site.boyd("approvals", "deny", "--yes", item.id, "--reason", "not now")
    wait_until(lambda: site.investigation().status == "ended")
    evidence = wait_until(site.evidence)

    assert site.health() == 503
    assert (site.folder / "courier.lock").read_text().split() == [str(dead_courier)]
    assert "not now" in json.dumps(evidence["findings"])
    assert "Customers get 503" in evidence["impact"]
    assert evidence["recommendedAction"].startswith("Remove ")
