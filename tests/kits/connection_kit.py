"""An agent in real processes, and the programs that tests of connectors need."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import pytest
import requests

from boyd.embedded.state_folder import read_key, read_runtime
from harness import PYTHONPATH, Deployment, wait_until


def program(name: str, package: str) -> str:
    """The path of a program; missing: skipped here, failed in CI."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if path is None:
        reason = f"{name} is missing: install the package {package}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


class AgentClient:
    """A client of the API of an agent that runs in real processes."""

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> dict[str, Any]:
        """The answer of the API."""
        url, key = self._api()
        answer = requests.request(
            method, f"{url}/api/v0{path}", json=body, headers={**key, **headers}, timeout=90
        )
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text}"
        body_read: dict[str, Any] = answer.json()
        return body_read

    def observed(self, source: str) -> dict[str, Any]:
        """The data of the next observation from *source*."""
        data: dict[str, Any] = wait_until(lambda: self._newest_data(source), 30)
        return data

    def perform(self, action: str, **params: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Have an action run that waits for approval: the approval item, and its execution."""
        called = self.ask("POST", f"/actions/{action}?wait=60", {"params": params})
        return self.approve(called)

    def preview(self, action: str, **params: Any) -> dict[str, Any]:
        """The result of a dry run."""
        reply = self.ask("POST", f"/actions/{action}/dry-run", {"params": params})
        result: dict[str, Any] = reply["result"]
        return result

    def observer_error(self, observer: str) -> str:
        """The error of an observer that fails in the next iterations."""
        error: str = wait_until(lambda: self._error(observer), 30)
        return error

    def undo(self, execution: dict[str, Any]) -> dict[str, Any]:
        """Roll an execution back, with approval; the execution of that."""
        called = self.ask("POST", f"/executions/{execution['id']}/rollback?wait=60")
        if called.get("queued"):
            self._answer(called)
        return self.ask("GET", f"/executions/rollback:{execution['id']}")

    def verified(self, execution: dict[str, Any]) -> dict[str, Any]:
        """The verification of an execution, once it has a verdict."""

        def find_verdict() -> dict[str, Any] | None:
            got = self.ask("GET", f"/executions/{execution['id']}").get("verification") or {}
            return got if got.get("verdict") else None

        entry: dict[str, Any] = wait_until(find_verdict, 60)
        return entry

    def wait_until_running(self, called: dict[str, Any]) -> str:
        """Wait until the execution of an approved call is claimed, and return its id."""
        execution = f"approval:{called['approvalId']}"

        def is_running() -> bool:
            executions = self.ask("GET", "/executions")["executions"]
            states = {entry["id"]: entry["state"] for entry in executions}
            return states.get(execution) == "running"

        wait_until(is_running, 60)
        return execution

    def approve(self, called: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Approve a call that waits for it: the approval item, and its execution."""
        item = self._answer(called)
        path = f"/executions/approval:{called['approvalId']}"
        # It may have to wait for the verdict on another execution.
        wait_until(lambda: self.ask("GET", f"/approvals/{called['approvalId']}").get("result"), 90)
        return item, self.ask("GET", path)

    def _answer(self, called: dict[str, Any]) -> dict[str, Any]:
        path = f"/approvals/{called['approvalId']}"
        item = self.ask("GET", path)
        version = {"If-Match": f'"{item["version"]}"'}
        self.ask("POST", f"{path}/approve?wait=60", {}, **version)
        return item

    def _api(self) -> tuple[str, dict[str, str]]:
        raise NotImplementedError

    def _latest(self) -> dict[str, Any]:
        raise NotImplementedError

    def _error(self, observer: str) -> str | None:
        errors = self._latest().get("observerErrors") or []
        return next((error["error"] for error in errors if error["id"] == observer), None)

    def _newest_data(self, source: str) -> dict[str, Any] | None:
        for observation in self._latest()["observations"]:
            if observation["source"] == source:
                data: dict[str, Any] = observation["data"]
                return data
        return None


class UpAgent(AgentClient):
    """An agent that `boyd up` runs."""

    def __init__(self, folder: Path, text: str, **environment: str) -> None:
        """Start the agent that *text* describes, in a file of *folder*."""
        file = folder / "agent.toml"
        file.write_text(f"{text}\n[approvals.required]\nallow_requester = true\n")
        self.output = folder / "output"
        self._state = folder / "state"
        environment = {
            **os.environ,
            "PYTHONPATH": PYTHONPATH,
            "BOYD_STATE_DIR": str(self._state),
            "BOYD_API__PORT": "0",
            "XDG_STATE_HOME": str(folder),
            **environment,
        }
        with self.output.open("w") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "boyd_cli", "up", str(file)],
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        wait_until(self._is_up, 60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(180)

    def _api(self) -> tuple[str, dict[str, str]]:
        running = read_runtime(self._state)
        assert running is not None
        assert running.api_url is not None
        return running.api_url, {"Authorization": f"Bearer {read_key(self._state)}"}

    def _is_up(self) -> bool:
        assert self._process.poll() is None, self.output.read_text()
        return "#1 " in self.output.read_text()

    def _latest(self) -> dict[str, Any]:
        listed = self.ask("GET", "/loop/history?limit=1")["iterations"]
        return self.ask("GET", f"/loop/history/{listed[0]['iteration']}")


class ConnectedAgent(AgentClient):
    """An agent on a worker beside an API, both forked, and much quicker there than `boyd up`.

    Each look at what it observes is an iteration.
    """

    def __init__(self, deployment: Deployment, text: str) -> None:
        """Start the agent that *text* describes."""
        file = deployment.folder / "agent.toml"
        file.write_text(f"{text}\n[approvals.required]\nallow_requester = true\n")
        deployment.worker("worker", str(file))
        self._url = deployment.api("api")
        self._key = deployment.key("ann", "admin")

    def _api(self) -> tuple[str, dict[str, str]]:
        return self._url, self._key

    def _latest(self) -> dict[str, Any]:
        number = self.ask("POST", "/loop/trigger?wait=60", {})["iteration"]
        return self.ask("GET", f"/loop/history/{number}")
