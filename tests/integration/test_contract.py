"""A running API keeps the promises of its OpenAPI document, whatever is sent to it.

Schemathesis finds no 500, no status and no shape that is not documented, and no way past the keys.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from boyd.testing import ScriptedModel
from boyd.testing.model_server import Received, Reply, call, say
from harness import Deployment, wait_until
from measuring import Measure

pytestmark = [pytest.mark.real, pytest.mark.slow]

SEED = "20260105"
#: Endless, or what would stop the agent that is tested, or take the key away that tests it.
EXCLUDED = r"/events$|/(pause|freeze|freeze-all|revoke)$|/keys/"
SUBMITTED = {"title": "Look", "description": "closely", "callbackUrl": "http://127.0.0.1:9/"}


@dataclass(frozen=True)
class Site:
    """A running API; *key* is that of the maker of its objects."""

    url: str
    key: dict[str, str]
    deployment: Deployment

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to a request that has to succeed."""
        answer = requests.request(
            method, f"{self.url}/api/v0{path}", json=body, headers=self.key, timeout=30
        )
        assert answer.ok, answer.text
        return answer.json()


def note_reply(request: Received) -> Reply:
    """A note is read and the answer given; who asks to wait waits for a person."""
    [*_, last] = request.body["messages"]
    if "wait" in str(last["content"]):
        return call("publish", {"text": last["content"]})
    return say("It says x.") if last["role"] == "tool" else call("read", {"text": "x"})


@pytest.fixture
def site(deployment: Deployment) -> Iterator[Site]:
    """An API with one worker, and a model."""
    with ScriptedModel([note_reply], forever=True) as model:
        yield _site(deployment, model)


def _site(deployment: Deployment, model: ScriptedModel) -> Site:
    deployment.environment |= {
        "MODEL_URL": f"{model.url}/v1",
        "BOYD_API__RATE": "100000",
        "BOYD_API__BURST": "1000000",
        "BOYD_API__MAX_WAIT": "1",
        "BOYD_CALLBACKS__ALLOW_PRIVATE": "true",
    }
    deployment.worker("worker", "agents.contract:agent")
    url = deployment.api("api")
    return Site(url, deployment.key("tester", "admin"), deployment)


def pending(site: Site, number: int) -> list[str]:
    """The ids of so many new pending approvals."""
    for n in range(number):
        body = {"params": {"text": f"number {n}"}, "rationale": "news"}
        site.ask("POST", "/actions/contract:publish", body)

    def proposals() -> list[str]:
        approvals = site.ask("GET", "/approvals")["pending"]
        return [item["id"] for item in approvals] if len(approvals) == number else []

    ids: list[str] = wait_until(proposals)
    return ids


def make_everything(site: Site) -> dict[str, Sequence[str]]:
    """Make something of everything: ids by the path in which they stand."""
    answerer = site.deployment.key("answerer", "approvals")
    approvals = pending(site, 30)
    for id, verb in zip(approvals, ("approve", "deny", "withdraw"), strict=False):
        where = f"{site.url}/api/v0/approvals/{id}/{verb}"
        assert requests.post(where, headers=answerer, timeout=60).ok
    runs = [site.ask("POST", "/runs", SUBMITTED)["id"] for _ in range(5)]
    wait_until(lambda: site.ask("GET", f"/runs/{runs[-1]}")["status"] == "completed")
    calls = [
        site.ask("POST", f"/actions/contract:{name}", {"params": {"text": "x"}})["executionId"]
        for name in ("write", "write", "write", "tear")
    ]
    questions = [*["Why?"] * 4, *(f"wait {number}" for number in range(6))]
    investigations = [
        site.ask("POST", "/investigations", {"question": question})["id"] for question in questions
    ]
    investigations.append(site.ask("POST", "/runs", {**SUBMITTED, "kind": "investigation"})["id"])
    wait_until(lambda: _states(site) == {"ended": 5, "waiting": 6})
    return {
        "approvals": approvals,
        "investigations": investigations,
        "runs": runs,
        "executions": [*calls, f"approval:{approvals[0]}", "loop:1"],
        "actions": ["contract:write", "contract:publish", "contract:tear"],
        "plugins": ["today"],
        "intake": ["json", "cloudevents", "alertmanager"],
        "problems": ["not-found"],
        "history": ["1"],
    }


def _states(site: Site) -> dict[str, int]:
    investigations = site.ask("GET", "/investigations")["investigations"]
    return dict(Counter(row["status"] for row in investigations))


#: Routes that have to succeed now and then, with what is sent to them.
REACHED = {
    *("POST /approvals/<id>/approve", "POST /approvals/<id>/deny", "POST /approvals/approve"),
    *("POST /investigations", "GET /investigations/<id>", "GET /investigations/<id>/log"),
    *("POST /investigations/<id>/messages", "POST /investigations/<id>/cancel"),
    *("POST /runs", "GET /runs/<id>", "GET /runs/<id>/callback", "GET /executions/<id>"),
    *(
        "POST /actions/<action:id>",
        "POST /executions/<id>/rollback",
        "GET /loop/history/<iteration>",
    ),
    *("PUT /plugins/<plugin>/<rest:path>", "POST /plugins/<plugin>/<rest:path>"),
}
#: The parameter that the ids stand for.
PARAMETERS = {"plugins": "path", "intake": "format", "problems": "name", "history": "iteration"}
#: `Allow` of these also tells GET and HEAD: they fit the path of an approval that nobody has.
BULK = """
[[operations]]
include-path-regex = '/approvals/(approve|deny|withdraw)$'
checks = { allow_header_conformance = { enabled = false } }
"""
#: Redis does not answer in time while the machine stands still.
STALLED = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "503"]
"""


def configuration(ids: dict[str, Sequence[str]]) -> str:
    """Most requests name something that exists, so that more is reached than refusals."""
    lines = [
        *("[dictionaries.contract]", 'values = ["contract"]'),
        "[parameters]",
        '"path.agentId" = { dictionary = "contract", probability = 0.8 }',
        '"path.plugin" = { dictionary = "contract", probability = 0.8 }',
    ]
    for noun, values in ids.items():
        name = PARAMETERS.get(noun, "id")
        lines += [
            *(f"[dictionaries.{noun}]", f"values = {json.dumps(values)}"),
            "[[operations]]",
            f"include-path-regex = '/{noun}/.*\\{{{name}\\}}'",
            f'parameters = {{ "path.{name}" = {{ dictionary = "{noun}", probability = 0.8 }} }}',
        ]
    return "\n".join([*lines, BULK, STALLED])


def schemathesis(site: Site, folder: Path, *options: str) -> None:
    """Run it over the whole document; it has to find nothing."""
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(folder / "st.toml")),
        *("run", f"{site.url}/openapi.json", "--exclude-path-regex", EXCLUDED),
        *("--seed", SEED, "--request-timeout", "60", "--suppress-health-check", "all"),
        # No schema tells which cursors were given out, or whether a callback's host is public.
        *("--exclude-checks", "positive_data_acceptance", "--generation-database", "none"),
        *("--continue-on-failure", "--no-color", *options),
    ]
    done = subprocess.run(
        command, cwd=folder, env=os.environ, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr


def read_metrics(site: Site) -> str:
    """The metrics of the API."""
    return requests.get(f"{site.url}/metrics", headers=site.key, timeout=60).text


def count_answers(site: Site) -> int:
    """Count the answered requests."""
    numbers = re.findall(r"^boyd_http_requests_total{.*} (\S+)$", read_metrics(site), re.MULTILINE)
    return int(sum(float(number) for number in numbers))


def successful_routes(site: Site) -> set[str]:
    """The routes that have answered with success, for a named agent or the default one."""
    matches = re.findall(r'{method="(\w+)",route="/api/v0([^"]*)",status="2', read_metrics(site))
    return {f"{method} {path.removeprefix('/agents/<agentId>')}" for method, path in matches}


@pytest.fixture
def folder(site: Site, tmp_path: Path) -> Path:
    """The working folder of schemathesis, with its configuration."""
    (tmp_path / "st.toml").write_text(configuration(make_everything(site)))
    return tmp_path


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_requests_with_an_admin_key_are_answered_as_documented(
    site: Site, folder: Path, measure: Measure
) -> None:
    # Somebody else than who has asked for the actions, so that approvals may be approved.
    [(name, value)] = site.deployment.key("fuzzer", "admin").items()
    schemathesis(site, folder, "--header", f"{name}: {value}", "--max-examples", "5")

    measure(
        11,
        f"{count_answers(site)} requests made up with an admin's key: all answered as documented",
    )
    assert site.ask("GET", "/state")["agent"]["id"] == "contract"
    assert site.ask("GET", "/audit/verify")["ok"]
    unreached = REACHED - successful_routes(site)
    assert not unreached, "the refusals are not all that was tested"


@pytest.mark.long
def test_requests_without_a_key_change_nothing(site: Site, folder: Path, measure: Measure) -> None:
    before, known_ones = site.ask("GET", "/audit?limit=1")["entries"][0]["seq"], count_answers(site)
    schemathesis(site, folder, "--max-examples", "3", "--phases", "examples,fuzzing")
    measure(
        14,
        f"{count_answers(site) - known_ones} requests made up without a key: nothing was changed",
    )

    assert site.ask("GET", "/audit?limit=1")["entries"][0]["seq"] == before, "nothing was changed"
