"""Clients that generators make of `/openapi.json`, without a change by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from api_kit import InlineDispatcher
from boyd.models import Autonomy
from boyd.store import Store
from cli_kit import lab_of, new_key, serving
from client_kit import PythonClient, TypeScriptClient
from kit import Recorder, choice, chooses

pytestmark = [pytest.mark.real, pytest.mark.long]

#: Submits a run for Eve with nothing but what it needs; Ann approves what it proposes, twice.
IN_PYTHON = """
import json, os
from boyd_client import AuthenticatedClient
from boyd_client.api.approvals import approvals_approve, approvals_queue
from boyd_client.api.runs import runs_show, runs_submit
from boyd_client.models import ApprovalAnswer, ProblemDocument, SentRun

def as_person(name):
    return AuthenticatedClient(base_url=os.environ["URL"], token=os.environ[name])

client = as_person("ANN")
sent = runs_submit.sync(client=as_person("EVE"), body=SentRun(title="look", description="at it"))
[item] = approvals_queue.sync(client=client).pending
resolved = approvals_approve.sync(item.id, client=client, body=ApprovalAnswer(note="go on"))
again = approvals_approve.sync(item.id, client=client)
assert isinstance(again, ProblemDocument), again
run = runs_show.sync(sent.id, client=client)
print(json.dumps([item.params.to_dict(), resolved.success, again.type_, run.status]))
"""

IN_TYPESCRIPT = """
import createClient from "openapi-fetch";
import type { paths } from "./boyd.d.ts";

declare const process: { env: Record<string, string | undefined> };
const asPerson = (key: string | undefined) =>
  createClient<paths>({
    baseUrl: process.env.URL!,
    headers: { Authorization: `Bearer ${key}` },
  });
const client = asPerson(process.env.ANN);
const sent = await asPerson(process.env.EVE).POST("/api/v0/runs", {
  body: { title: "look", description: "at it" },
});
const queue = await client.GET("/api/v0/approvals");
const [item] = queue.data!.pending;
const params = { path: { id: item!.id } };
const resolved = await client.POST("/api/v0/approvals/{id}/approve", {
  params,
  body: { note: "go on" },
});
const again = await client.POST("/api/v0/approvals/{id}/approve", { params });
const run = await client.GET("/api/v0/runs/{id}", {
  params: { path: { id: sent.data!.id } },
});
console.log(
  JSON.stringify([item!.params, resolved.data!.success, again.error!.type, run.data!.status]),
);
"""


@dataclass
class Office:
    """An API before an agent whose only action needs an approval."""

    recorder: Recorder
    url: str
    #: The keys of Ann and Eve.
    keys: dict[str, str]


@pytest.fixture
def office(redis_url: str, store: Store) -> Iterator[Office]:
    """An office where nothing waits."""
    recorder = Recorder("done")
    gated = recorder.action(autonomy=Autonomy(mode="approval-required"))
    lab = lab_of(store, chooses(choice(params={"room": "attic"})), gated)
    keys = {
        name.upper(): new_key(redis_url, name, "read", "runs", "approvals", person=True)
        for name in ("ann", "eve")
    }
    with serving(redis_url, dispatcher=InlineDispatcher(lab)) as api:
        yield Office(recorder, api.url, keys)


@pytest.mark.parametrize(
    ("make", "program"), [(PythonClient, IN_PYTHON), (TypeScriptClient, IN_TYPESCRIPT)]
)
def test_a_generated_client_submits_a_run_and_approves_its_action(
    office: Office,
    make: type[PythonClient | TypeScriptClient],
    program: str,
    tmp_path: Path,
) -> None:
    output = make(office.url, tmp_path).run(program, URL=office.url, **office.keys)

    params, success, problem, status = json.loads(output)
    assert (params, success, status) == ({"room": "attic"}, True, "completed")
    assert problem == "/problems/not-pending"
    assert len(office.recorder.calls) == 1
