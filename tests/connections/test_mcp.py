"""Tools of real MCP servers, over both transports, called by an agent in real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from boyd.plugins.mcp_client.remote_server import RemoteServer, ServerFailure
from boyd.plugins.mcp_client.tool_server import argument_headers, offers, output_of, talking
from connection_kit import ConnectedAgent
from harness import Deployment, free_port, wait_until
from mcp_kit import HERE, Rogue, tool
from npm_kit import MCP, conformance

pytestmark = [pytest.mark.real, pytest.mark.long]

#: The scenarios of the conformance suite that concern listing and calling tools. The others are
#: about what the client does not offer: OAuth, questions of a server, and skills.
SCENARIOS = (
    *("initialize", "tools_call", "tools_call@2026-07-28", "sse-retry", "request-metadata"),
    *("http-standard-headers", "http-custom-headers", "http-invalid-tool-headers"),
    *("json-schema-ref-no-deref", "json-schema-2020-12-preservation"),
    "json-schema-2020-12-preservation@2026-07-28",
)


def program(name: str, *arguments: str) -> list[str]:
    """The command of one of the official servers."""
    script = MCP.require() / "node_modules" / "@modelcontextprotocol" / name / "dist" / "index.js"
    return ["node", str(script), *arguments]


@pytest.fixture(scope="module")
def everything() -> Iterator[str]:
    """The URL of the official server-everything."""
    port = str(free_port())
    command = program("server-everything", "streamableHttp")
    yield from _serving(command, f"http://127.0.0.1:{port}/mcp", PORT=port)


@pytest.fixture(scope="module")
def python_server() -> Iterator[str]:
    """The URL of a server of the official Python SDK."""
    port = str(free_port())
    command = [sys.executable, str(HERE / "mcp_sums.py"), port]
    yield from _serving(command, f"http://127.0.0.1:{port}/mcp")


def _serving(command: list[str], url: str, **environment: str) -> Iterator[str]:
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=quiet, stderr=quiet
    ) as process:
        try:
            wait_until(lambda: _answers(url), 30)
            yield url
        finally:
            process.kill()


def _answers(url: str) -> bool:
    try:
        requests.get(url, timeout=5, stream=True).close()
    except requests.RequestException:
        return False
    return True


def call_tool(server: RemoteServer, name: str, **arguments: Any) -> tuple[str, Any]:
    """The revision of the protocol that was spoken, and the output of a tool."""
    with talking(server, Path()) as connection:
        offer, _ = offers(connection, server)
        headers = argument_headers(offer.tools[name].schema_, arguments)
        return connection.revision, output_of(connection.call(name, arguments, headers))


# Official servers


def test_server_everything_is_used_over_stdio() -> None:
    server = RemoteServer(argv=program("server-everything"))

    assert call_tool(server, "echo", message="hi") == ("2025-11-25", {"text": "Echo: hi"})
    _, picture = call_tool(server, "get-tiny-image")
    assert "[image, image/png, " in picture["text"]


def test_server_everything_is_used_over_http(everything: str) -> None:
    server = RemoteServer(url=everything, allow_private=True)

    assert call_tool(server, "get-sum", a=2, b=3)[0] == "2025-11-25"
    long = call_tool(server, "trigger-long-running-operation", duration=1, steps=2)
    assert "completed" in long[1]["text"]


def test_server_memory_keeps_created_entities(tmp_path: Path) -> None:
    where = {"MEMORY_FILE_PATH": str(tmp_path / "memory.json")}
    server = RemoteServer(argv=program("server-memory"), env=where)
    entity = {"name": "Ann", "entityType": "person", "observations": ["on call"]}
    call_tool(server, "create_entities", entities=[entity])

    _, output = call_tool(server, "read_graph")
    assert "on call" in output["text"]
    assert output["structured"]["entities"][0]["name"] == "Ann"


def test_a_server_of_the_python_sdk_speaks_the_newest_revision(python_server: str) -> None:
    over_http = RemoteServer(url=python_server, allow_private=True)
    over_stdio = RemoteServer(argv=[sys.executable, str(HERE / "mcp_sums.py")])

    for server in (over_http, over_stdio):
        assert call_tool(server, "add", a=2, b=3) == (
            "2026-07-28",
            {"text": "5", "structured": {"result": 5}},
        )


def test_a_private_address_needs_leave(everything: str) -> None:
    local = everything.replace("127.0.0.1", "localtest")
    with pytest.raises(ServerFailure, match="is not a public address"):
        call_tool(RemoteServer(url=everything), "echo")
    with pytest.raises(ServerFailure, match="failed"):
        call_tool(RemoteServer(url=local), "echo")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_conformance_suite_passes(scenario: str, tmp_path: Path) -> None:
    name, _, version = scenario.partition("@")
    client = f"{sys.executable} {HERE / 'mcp_scenarios.py'}"
    chosen = ["--spec-version", version] if version else []
    done = conformance("client", "--command", client, "--scenario", name, *chosen, cwd=tmp_path)

    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert re.search(r"Passed: ([1-9]\d*)/\1, 0 failed, 0 warnings", output), output


# An agent in real processes

AGENT = """
id = "tools"
[[plugins]]
use = "mcp"
[plugins.options.servers.{name}]
argv = {argv}
timeout = 20
{more}
"""


def agent(deployment: Deployment, name: str, argv: list[str], more: str = "") -> ConnectedAgent:
    """An agent whose tools are locked by the command line."""
    text = AGENT.format(name=name, argv=json.dumps(argv), more=more)
    (deployment.folder / "agent.toml").write_text(text)
    done = boyd(deployment, "mcp", "sync", "agent.toml")
    assert "written: " in done.stdout, done.stderr
    return ConnectedAgent(deployment, text)


def boyd(deployment: Deployment, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line beside the agent file."""
    command = [sys.executable, "-m", "boyd_cli", *arguments]
    return subprocess.run(command, cwd=deployment.folder, capture_output=True, text=True)


def test_a_file_is_written_by_a_tool_that_a_person_has_approved(deployment: Deployment) -> None:
    folder = deployment.folder / "served"
    folder.mkdir()
    running = agent(deployment, "files", program("server-filesystem", str(folder)))
    file = folder / "note.txt"
    preview = running.preview("mcp:files/write_file", path=str(file), content="hello")
    item, execution = running.perform("mcp:files/write_file", path=str(file), content="hello")

    assert item["risk"] == "high"
    assert item["preview"]["output"] == preview["output"]
    assert preview["output"]["calls"] == "write_file of the MCP server files"
    assert execution["state"] == "succeeded"
    assert file.read_text() == "hello"


def test_the_command_line_shows_tools_and_finds_a_change(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path)
    argv = json.dumps(rogue.options["argv"])
    (tmp_path / "agent.toml").write_text(AGENT.format(name="rogue", argv=argv, more=""))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "boyd_cli", "mcp", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert "new: rogue/send sha256:" in run("sync", "agent.toml").stdout
    assert "nothing differs" in run("sync", "agent.toml", "--check").stdout
    listed = json.loads(run("list", "agent.toml", "-o", "json").stdout)
    assert [(row["tool"], row["risk"]) for row in listed] == [("mcp:rogue/send", "high")]
    rogue.behave([tool(description="Now another.")])
    changed = run("sync", "agent.toml", "--check")
    assert (changed.returncode, "+Now another." in changed.stdout) == (1, True)
    rogue.behave(on_start="die")
    failed = run("sync", "agent.toml")
    assert (failed.returncode, "what is locked stays" in failed.stderr) == (1, True)


def test_a_server_that_is_killed_in_a_call_leaves_the_outcome_unknown_and_nothing_else(
    deployment: Deployment,
) -> None:
    rogue = Rogue(deployment.folder)
    rogue.behave([tool()], on_call="hang")
    running = agent(deployment, "rogue", rogue.options["argv"])
    called = running.ask("POST", "/actions/mcp:rogue/send?wait=60", {"params": {"text": "hi"}})
    path = f"/approvals/{called['approvalId']}"
    version = {"If-Match": f'"{running.ask("GET", path)["version"]}"'}
    running.ask("POST", f"{path}/approve?wait=0", {}, **version)
    wait_until(lambda: rogue.calls, 30)
    os.kill(int((rogue.folder / "pid").read_text()), signal.SIGKILL)
    execution = f"/executions/approval:{called['approvalId']}"
    wait_until(lambda: running.ask("GET", execution)["state"] != "running", 30)

    execution_after = running.ask("GET", execution)
    assert (execution_after["state"], rogue.calls) == ("unknown", [{"text": "hi"}])
    assert "it ended, or closed its output; it may have" in execution_after["result"]["error"]
    rogue.behave([tool()])
    _, again = running.perform("mcp:rogue/send", text="again")
    assert again["state"] == "succeeded"
    assert rogue.calls == [{"text": "hi"}, {"text": "again"}]
