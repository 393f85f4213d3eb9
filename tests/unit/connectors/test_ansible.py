"""The plugin `ansible`, with programs in place of Ansible's."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from boyd.errors import PluginError
from boyd.models import ActionResult, Observation
from boyd.plugin import Context
from boyd_connectors.ansible import playbook_options
from boyd_connectors.ansible.playbook_options import (
    AnsibleFailure,
    AnsiblePlaybook,
    digest_of,
    running_lock,
)
from boyd_connectors.ansible.playbook_run import (
    CompletedRun,
    preview_of,
    read_events,
    verdict_by_check_mode,
    verdict_by_playbook,
)
from boyd_connectors.ansible.plugin import Ansible
from harness import wait_until
from plugin_kit import Rig

INVENTORY = """#!/bin/sh
for file; do :; done
cat > "$file" <<'END'
{"_meta": {}, "all": {"children": ["web"]}, "web": {"hosts": ["web1", "web2", "web3"]}}
END
"""
CHANGED = {"event": "changed", "task": "Write", "diff": "-1\n+2"}
PARAMS = {"hosts": "web", "version": "1.2"}


def begin_events(*hosts: str) -> list[dict[str, Any]]:
    return [{"event": "begun", "host": host} for host in hosts]


def end_event(**hosts: dict[str, int]) -> dict[str, Any]:
    return {"event": "ended", "hosts": hosts}


def unreachable_event(host: str, late: bool = False) -> dict[str, Any]:
    return {"event": "unreachable", "host": host, "task": "Write", "error": "gone", "late": late}


class Project:
    """A project whose `ansible-playbook` notes what it is given, and tells the events given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.bin_dir = folder / "bin"
        self.seen = folder / "seen"
        for path in (self.folder, self.bin_dir):
            path.mkdir()
        (self.folder / "site.yml").write_text("[]")
        (self.folder / "back.yml").write_text("[]")
        (self.folder / "inventory").write_text("[web]\nweb1\n")
        self._program("ansible-inventory", INVENTORY)

    def tells(self, *events: dict[str, Any], then: str = "exit 0") -> None:
        """Have the playbook tell *events*, and run a line of the shell."""
        lines = "\n".join(map(json.dumps, events))
        self._program(
            "ansible-playbook",
            f"""#!/bin/sh
{{ echo "$@"; env; }} > {self.seen}
for word; do
  case $word in @*) cat "${{word#@}}" >> {self.seen};; /dev/fd/*) cat "$word" >> {self.seen};; esac
done
cat > "$BOYD_ANSIBLE_EVENTS" <<'END'
{lines}
END
{then}
""",
        )

    def rig(self, book: dict[str, Any] | None = None, **more: Any) -> Rig:
        """A rig with the playbook `release`."""
        book = {"file": "site.yml", "variables": {"version": {}}, **(book or {})}
        options = {"project": self.folder, "bin_dir": self.bin_dir, **more}
        return Rig(Ansible(**options, playbooks={"release": book}, actions={"release": {}}))

    def _program(self, name: str, text: str) -> None:
        (self.bin_dir / name).write_text(text)
        (self.bin_dir / name).chmod(0o755)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"hosts": "web:!web1"}, "hosts"),
        ({"hosts": "@/etc/passwd"}, "hosts"),
        ({"hosts": "--become"}, "hosts"),
        ({"hosts": "*"}, "hosts"),
        ({"version": "{{ lookup('pipe', 'id') }}"}, "version"),
        ({"note": "{{ lookup('pipe', 'id') }}"}, "template"),
        ({"note": "a\nb"}, "printed"),
        ({"version": "1; reboot"}, "version"),
        ({"count": "3"}, "count"),
        ({"count": 9}, "count"),
        ({"colour": "red"}, "colour"),
        ({"ansible_user": "root"}, "ansible_user"),
    ],
)
def test_only_declared_variables_with_declared_values_are_taken(
    values: dict[str, Any], reason: str
) -> None:
    variables: dict[str, Any] = {
        "version": {},
        "note": {"pattern": "(?s).*", "default": ""},
        "count": {"type": "integer", "maximum": 5, "default": 1},
        "colour": {"choices": ["blue", "green"], "default": "blue"},
    }
    model = AnsiblePlaybook(file="site.yml", variables=variables).params("release")
    assert model.model_validate(PARAMS).model_dump(by_alias=True)["count"] == 1
    with pytest.raises(ValidationError, match=reason):
        model.model_validate({**PARAMS, **values})


@pytest.mark.parametrize(
    ("book", "reason"),
    [
        ({"variables": {"ansible_user": {}}}, "ansible_user: this name is taken"),
        ({"variables": {"version": {"pattern": "("}}}, "variables"),
        ({"variables": {"version": {}}, "drift": True}, "version: has no default"),
        ({"variables": {"version": {"default": "a b"}}, "drift": True}, "variables"),
        ({"file": "../site.yml"}, "file"),
    ],
)
def test_options_that_cannot_be_used_are_refused(book: dict[str, Any], reason: str) -> None:
    with pytest.raises(PluginError, match=reason):
        Ansible(project="/a", playbooks={"release": {"file": "site.yml", **book}})


def test_an_action_needs_a_playbook_and_a_playbook_an_action() -> None:
    books: dict[str, Any] = {"release": {"file": "site.yml"}}
    with pytest.raises(PluginError, match="reboot is not among the playbooks"):
        Ansible(project="/a", playbooks=books, actions={"reboot": {}})
    assert not Rig(Ansible(project="/a", playbooks=books)).host.actions


def test_a_digest_follows_every_file_but_those_that_are_not_pinned(tmp_path: Path) -> None:
    def digest(*hosts: str) -> str:
        return digest_of([tmp_path], ["*.log"], hosts)

    (tmp_path / "roles").mkdir()
    (tmp_path / "roles/main.yml").write_text("a")
    (tmp_path / "roles/above").symlink_to(tmp_path)
    first = digest("web1")
    (tmp_path / "ansible.log").write_text("more")
    assert digest("web1") == first
    assert digest("web1", "web2") != first
    (tmp_path / "roles/main.yml").write_text("b")
    assert digest("web1") != first


def test_a_partial_run_is_reported_by_host(project: Project) -> None:
    project.tells(
        *begin_events("web1", "web2", "web3"),
        {**CHANGED, "host": "web1"},
        {**CHANGED, "host": "web2"},
        unreachable_event("web3"),
        end_event(web1={"changed": 1}, web2={"changed": 1}, web3={"unreachable": 1}),
        then="exit 4",
    )
    result = project.rig().result("release", PARAMS)
    output: Any = result.output
    assert output["hosts"] == {"changed": ["web1", "web2"], "unreachable": ["web3"]}
    assert output["details"][0]["hosts"] == ["web1", "web2"]
    assert (result.success, result.unknown) == (False, None)
    assert result.error == "web3 unreachable: Write: gone; changed: web1, web2"


def test_a_host_lost_in_a_task_leaves_an_unknown_outcome(project: Project) -> None:
    project.tells(
        *begin_events("web1"),
        unreachable_event("web1", late=True),
        end_event(web1={"unreachable": 1}),
    )
    result = project.rig().result("release", PARAMS)
    assert result.unknown
    assert "may have taken effect" in (result.error or "")


def test_an_ansible_that_is_killed_leaves_an_unknown_outcome(project: Project) -> None:
    project.tells(*begin_events("web1", "web2"), {**CHANGED, "host": "web1"}, then="kill -KILL $$")
    result = project.rig().result("release", PARAMS)
    output: Any = result.output
    assert result.unknown
    assert "killed by signal 9" in (result.error or "")
    assert output["hosts"] == {"unfinished": ["web1", "web2"]}
    assert output["details"] == [
        {"hosts": ["web1"], "changes": [{"task": "Write", "diff": "-1\n+2"}]}
    ]


def test_an_ansible_that_ends_before_any_host_has_changed_nothing(project: Project) -> None:
    project.tells(then="echo 'ERROR! Syntax'; exit 1")
    with pytest.raises(AnsibleFailure, match=r"Syntax: no host was touched"):
        project.rig().act("release", PARAMS)


def test_a_playbook_left_running_by_a_killed_worker_blocks_others(project: Project) -> None:
    fifo = project.folder.parent / "fifo"
    os.mkfifo(fifo)
    project.tells(*begin_events("web1"), end_event(web1={"ok": 1}), then=f"read line < {fifo}")
    rig = project.rig()
    running = threading.Thread(target=lambda: rig.act("release", PARAMS))
    running.start()
    wait_until(project.seen.exists)
    for function in ("execute", "verify"):
        with pytest.raises(AnsibleFailure, match="still runs"):
            rig.act("release", PARAMS) if function == "execute" else rig.verify("release", PARAMS)
    fifo.write_text("go\n")
    running.join()


def test_a_rollback_waits_until_what_runs_has_ended(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = project.rig({"rollback": "back.yml"})
    project.tells(
        *begin_events("web2"), {**CHANGED, "host": "web2"}, end_event(web2={"changed": 1})
    )
    refused, locked = threading.Event(), playbook_options._try_lock

    def is_free(descriptor: int) -> bool:
        free = locked(descriptor)
        if not free:
            refused.set()
        return free

    output = rig.act("release", PARAMS)
    action = rig.host.actions["ansible:release"]
    result = ActionResult(action=action.id, success=True, duration=1, output=output)
    assert action.params is not None
    params = action.params.model_validate(PARAMS)
    monkeypatch.setattr(playbook_options, "_try_lock", is_free)
    with ThreadPoolExecutor(1) as pool:
        with running_lock(project.folder):
            undone = pool.submit(action.call, "rollback", params=params, result=result, ctx=rig.ctx)
            assert refused.wait(60)
        assert undone.result(60)["hosts"]


def test_secrets_and_variables_are_in_no_argument_and_no_environment(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BECOME", "become-secret")
    monkeypatch.setenv("BOYD_SOMETHING", "worker-secret")
    (tmp_path / "vault").write_text("vault-secret\n")
    project.tells(*begin_events("web1"), end_event(web1={"ok": 1}))
    access = {"become_password": {"env": "BECOME"}, "vault_password": {"file": tmp_path / "vault"}}
    project.rig(access={**access, "user": "deploy"}).act("release", PARAMS)
    text = project.seen.read_text()
    assert text.endswith(f"vault-secretbecome-secret{variables(text)}")
    assert text.count("-secret") == 2
    data = json.loads(variables(text))
    assert (data["version"], data["ansible_user"]) == ("1.2", "deploy")
    assert "StrictHostKeyChecking=yes" in data["ansible_ssh_args"]


def variables(output: str) -> str:
    return output[output.index('{"version"') :]


class _Approvals:
    def __init__(self, preview: ActionResult | None) -> None:
        self._preview = preview

    def get(self, approval_id: str) -> Any:
        return SimpleNamespace(preview=self._preview)

    def waiting(self, approval_ids: Any) -> set[str]:
        return set()


def execute_action(rig: Rig, preview: Any, id: str = "approval:abc") -> Any:
    action = rig.host.actions["ansible:release"]
    assert action.params is not None
    approved_preview = preview and ActionResult(
        action=action.id, success=True, duration=0, output=preview
    )
    ctx: Context = replace(rig.ctx, execution_id=id, _approvals=_Approvals(approved_preview))
    return action.call("execute", params=action.params.model_validate(PARAMS), ctx=ctx)


@pytest.mark.parametrize("whole", [False, True])
def test_files_that_have_changed_since_the_approval_are_not_run(
    project: Project, whole: bool
) -> None:
    rig = project.rig()
    project.tells(*begin_events("web1"), end_event(web1={"ok": 1}))
    preview: Any = rig.act("release", PARAMS, "dry_run")
    if whole:  # the approval of a procedure
        preview = {"steps": [{"step": "first"}, {"step": "second", "preview": preview}]}
    id = "step:approval:abc:second" if whole else "approval:abc"
    assert execute_action(rig, preview, id)["hosts"] == {"unchanged": ["web1"]}
    project.seen.unlink()
    (project.folder / "site.yml").write_text("[changed]")
    with pytest.raises(AnsibleFailure, match="have changed since the preview that was approved"):
        execute_action(rig, preview, id)
    with pytest.raises(AnsibleFailure, match="no preview"):
        execute_action(rig, None, id)
    assert not project.seen.exists()


def test_a_rollback_runs_on_the_hosts_that_were_changed(project: Project) -> None:
    rig = project.rig({"rollback": "back.yml"})
    project.tells(
        *begin_events("web1", "web2"),
        {**CHANGED, "host": "web2"},
        end_event(web1={}, web2={"changed": 1}),
    )
    output = rig.act("release", PARAMS)
    rig.roll_back("release", PARAMS, output)
    assert "--limit web2 " in project.seen.read_text()
    assert "-- back.yml" in project.seen.read_text()
    (project.folder / "back.yml").write_text("[changed]")
    with pytest.raises(AnsibleFailure, match=r"have changed since site\.yml ran"):
        rig.roll_back("release", PARAMS, output)
    assert rig.verify("release", PARAMS, output).verdict == "cannot tell"


def test_a_rollback_runs_on_all_hosts_that_were_changed(project: Project) -> None:
    rig = project.rig({"rollback": "back.yml"})
    hosts = [f"web{number:03}" for number in range(300)]
    project.tells(
        *({**CHANGED, "host": host} for host in hosts),
        end_event(**{host: {"changed": 1} for host in hosts}),
    )
    output = rig.act("release", PARAMS)
    rig.roll_back("release", PARAMS, output)
    assert f"--limit {','.join(hosts)} " in project.seen.read_text()


def test_an_unknown_host_is_refused_before_anything_runs(project: Project) -> None:
    for function in ("dry_run", "execute"):
        with pytest.raises(AnsibleFailure, match="no host and no group db"):
            project.rig().act("release", {**PARAMS, "hosts": "db"}, function)


def test_a_missing_ansible_is_reported_with_the_package_to_install(
    project: Project, tmp_path: Path
) -> None:
    with pytest.raises(AnsibleFailure, match="install ansible-core"):
        project.rig(bin_dir=tmp_path).act("release", PARAMS)


def test_drift_is_seen_and_what_cannot_be_checked_is_no_good_news(project: Project) -> None:
    book = {"variables": {}, "drift": True}
    project.tells(
        *begin_events("web1", "web2", "web3"),
        {**CHANGED, "host": "web1"},
        unreachable_event("web3"),
        end_event(web1={"changed": 1}, web2={"ok": 1}, web3={"unreachable": 1}),
    )
    rig = project.rig(book)
    observations: list[Observation] = rig.host.observers["ansible:drift"].call(
        "observe", ctx=rig.ctx
    )
    assert [
        (observation.source, observation.data.get("hosts")) for observation in observations[:2]
    ] == [
        ("ansible/drift", "web1"),
        ("ansible/unchecked", "web3"),
    ]
    assert observations[0].data == {"hosts": "web1", "playbook": "release", "tasks": ["Write"]}
    assert observations[-1].data == {"playbooks": 1, "drifted": 1, "unknown": 1, "omitted": 0}


def run_of(tmp_path: Path, *events: dict[str, Any]) -> CompletedRun:
    path = tmp_path / "events"
    path.write_text("\n".join([*map(json.dumps, events), '{"event": "chang']))
    return CompletedRun(read_events(path))


LEFT_OUT = {"event": "left out", "host": "web1", "task": "Run"}


@pytest.mark.parametrize(
    ("events", "verdict", "preview"),
    [
        ([], "effective", "would not change"),
        ([{**CHANGED, "host": "web1"}], "no effect", "would change"),
        ([{**CHANGED, "host": "web1", "diff": ""}], "cannot tell", "would change"),
        ([LEFT_OUT], "cannot tell", "cannot know"),
        ([unreachable_event("web1")], "cannot tell", "unreachable"),
    ],
)
def test_check_mode_says_what_it_knows(
    tmp_path: Path, events: list[dict[str, Any]], verdict: str, preview: str
) -> None:
    run = run_of(tmp_path, *begin_events("web1"), *events, end_event(web1={"ok": 1}))
    assert verdict_by_check_mode(run).verdict == verdict
    assert preview_of(run)["hosts"] == {preview: ["web1"]}


def test_a_playbook_for_it_decides_the_verdict(tmp_path: Path) -> None:
    assert (
        verdict_by_playbook("check.yml", run_of(tmp_path, end_event(web1={"ok": 1}))).verdict
        == "effective"
    )
    failed = run_of(tmp_path, end_event(web1={"failures": 1}))
    assert verdict_by_playbook("check.yml", failed).verdict == "no effect"
    assert (
        verdict_by_playbook("check.yml", run_of(tmp_path, *begin_events("web1"))).verdict
        == "cannot tell"
    )
