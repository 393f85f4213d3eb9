"""The connector `ansible` with a real Ansible and a real sshd for each host."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ansible_kit import Fleet, fleet
from boyd_connectors.ansible.playbook_options import AnsibleFailure
from boyd_connectors.ansible.plugin import Ansible
from connection_kit import ConnectedAgent, program
from harness import Deployment, wait_until
from plugin_kit import Rig, data_of

pytestmark = [pytest.mark.real, pytest.mark.long]

SITE = """
- hosts: web
  gather_facts: false
  tasks:
    - name: Write the version
      ansible.builtin.copy:
        dest: "{{ folder }}/version"
        content: "{{ version }}\\n"
"""
ROLLBACK = """
- hosts: web
  gather_facts: false
  tasks:
    - name: Write the old version
      ansible.builtin.copy:
        dest: "{{ folder }}/version"
        content: "0.9\\n"
"""
#: A task that only ends when it is told to, after it has changed something.
SLOW = """
- hosts: web
  gather_facts: false
  tasks:
    - name: Begin
      ansible.builtin.command:
        argv: [sh, -c, "touch begun; while ! [ -e go ]; do sleep 0.1; done"]
        chdir: "{{ folder }}"
        creates: "{{ folder }}/go"
"""
SECRETS = """
- hosts: web
  gather_facts: false
  vars_files: [vault.yml]
  tasks:
    - name: Keep quiet
      no_log: true
      ansible.builtin.copy:
        dest: "{{ folder }}/secret"
        content: "{{ key }}"
    - name: Run a command
      ansible.builtin.command: "true"
    - name: Not now
      ansible.builtin.command: "false"
      when: false
"""
BOOK = {
    "file": "site.yml",
    "rollback": "rollback.yml",
    "variables": {"version": {"pattern": r"\d+(\.\d+)*", "default": "1.0"}},
}
PARAMS = {"hosts": "web", "version": "1.0"}


@pytest.fixture(scope="module")
def running() -> Iterator[Fleet]:
    with fleet("web1", "web2") as running_fleet:
        yield running_fleet


@pytest.fixture
def hosts(running: Fleet) -> Fleet:
    for host in running.hosts.values():
        for name in ("version", "begun", "go", "secret"):
            (host.folder / name).unlink(missing_ok=True)
    running.write("site.yml", SITE)
    running.write("rollback.yml", ROLLBACK)
    running.write("slow.yml", SLOW)
    return running


def rig_of(hosts: Fleet, book: dict[str, Any] | None = None, **more: Any) -> Rig:
    books = {"release": book or BOOK}
    return Rig(Ansible(**hosts.options(playbooks=books, actions={"release": {}}, **more)))


def test_hosts_that_hang_or_are_down_are_seen_and_others_tell_their_facts(hosts: Fleet) -> None:
    rig = rig_of(hosts)
    hosts.hosts["web2"].stop()
    try:
        observations = rig.observe()
    finally:
        hosts.hosts["web2"].stop(signal.SIGCONT)
    [lost] = data_of(observations, "unreachable")
    assert lost["hosts"] == "web2"
    [host_data] = data_of(observations, "host")
    assert (host_data["hosts"], bool(host_data["facts"]["kernel"])) == ("web1", True)
    assert data_of(observations, "summary") == [{"hosts": 2, "unreachable": 1, "omitted": 0}]


def test_a_host_with_another_key_is_not_trusted(hosts: Fleet, tmp_path: Path) -> None:
    other = tmp_path / "known_hosts"
    other.write_text(hosts.hosts["web1"].known_hosts_line.replace("[127.0.0.1]:", "[127.0.0.1]:1"))
    observations = rig_of(hosts, known_hosts=str(other)).observe()
    assert {row["hosts"] for row in data_of(observations, "unreachable")} == {"web1", "web2"}
    # The client of SSH may end before Ansible has written to it; its own words are lost then.
    error = data_of(observations, "unreachable")[0]["error"]
    assert any(words in error for words in ("Host key verification failed", "Broken pipe"))


def test_a_preview_hides_secrets_and_says_what_it_cannot_know(hosts: Fleet, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("open sesame\n")
    hosts.write("vault.yml", "key: very-hidden\n")
    vault = program("ansible-vault", "ansible-core")
    argv = [vault, "encrypt", "--vault-password-file", f"{password}"]
    argv.append(f"{hosts.project}/vault.yml")
    subprocess.run(argv, check=True, capture_output=True)
    hosts.write("secrets.yml", SECRETS)
    access = {"private_key": str(hosts.key), "vault_password": {"file": str(password)}}
    rig = rig_of(hosts, {"file": "secrets.yml"}, access=access)
    result = rig.act("release", {"hosts": "web1"}, "dry_run")
    assert result["hosts"] == {"would change": ["web1"]}
    assert result["details"] == [
        {
            "hosts": ["web1"],
            "changes": [{"task": "Keep quiet"}],
            "notPreviewed": ["Run a command"],
        }
    ]
    output = rig.act("release", {"hosts": "web1"})
    assert hosts.read("web1", "secret") == "very-hidden"
    assert "very-hidden" not in str(output)


def test_a_host_that_dies_in_a_task_leaves_a_true_record(hosts: Fleet) -> None:
    rig, params = rig_of(hosts, {"file": "slow.yml"}), {"hosts": "web"}
    outcome: list[Any] = []
    acting = threading.Thread(target=lambda: outcome.append(rig.act("release", params)))
    acting.start()
    wait_until(lambda: hosts.read("web1", "begun") is not None)
    wait_until(lambda: hosts.read("web2", "begun") is not None)
    hosts.hosts["web2"].kill()
    (hosts.hosts["web1"].folder / "go").touch()
    acting.join()
    [result] = outcome
    assert result.unknown
    assert result.output["hosts"] == {"changed": ["web1"], "unreachable": ["web2"]}
    assert "may have taken effect" in result.error
    verdict = rig.verify("release", params)
    assert (verdict.verdict, "web2 unreachable" in verdict.evidence) == ("cannot tell", True)

    hosts.hosts["web2"].start()
    (hosts.hosts["web2"].folder / "go").touch()
    assert rig.verify("release", params).verdict == "effective"


def test_a_task_that_takes_too_long_leaves_an_unknown_outcome(hosts: Fleet) -> None:
    # Files of its own, as the task on the host goes on.
    hosts.write("late.yml", SLOW.replace("begun", "late").replace("go", "gone"))
    rig = rig_of(hosts, {"file": "late.yml"}, task_timeout=2)
    result = rig.act("release", {"hosts": "web1"})
    (hosts.hosts["web1"].folder / "gone").touch()
    assert result.unknown
    assert result.output["hosts"] == {"failed": ["web1"]}


def test_an_ansible_that_is_killed_leaves_a_true_record(hosts: Fleet) -> None:
    rig, params = rig_of(hosts, {"file": "slow.yml"}), {"hosts": "web1"}
    outcome: list[Any] = []
    acting = threading.Thread(target=lambda: outcome.append(rig.act("release", params)))
    acting.start()
    wait_until(lambda: hosts.read("web1", "begun") is not None)
    children = Path(f"/proc/{os.getpid()}/task/{acting.native_id}/children").read_text().split()
    for child in children:
        with suppress(ProcessLookupError):
            os.killpg(int(child), signal.SIGKILL)
    acting.join()
    [result] = outcome
    assert result.unknown
    assert result.output["hosts"] == {"unfinished": ["web1"]}
    (hosts.hosts["web1"].folder / "go").touch()  # the task on the host goes on

    def verdict() -> Any:
        with suppress(AnsibleFailure):  # workers of newer versions live a little longer
            return rig.verify("release", params).verdict
        return None

    assert wait_until(verdict, 60) == "effective"


def test_an_agent_sees_drift_and_ends_it_with_approval_and_undoes_that(
    hosts: Fleet, deployment: Deployment
) -> None:
    text = f"""
    id = "fleet"
    [[plugins]]
    use = "ansible"
    [plugins.options]
    project = "{hosts.project}"
    known_hosts = "{hosts.known_hosts}"
    access = {{ private_key = "{hosts.key}" }}
    [plugins.options.playbooks.release]
    file = "site.yml"
    rollback = "rollback.yml"
    drift = true
    hosts = "web1"
    variables = {{ version = {{ pattern = '\\d+(\\.\\d+)*', default = "1.0" }} }}
    [plugins.options.actions.release]
    """
    agent = ConnectedAgent(deployment, text)
    drift = agent.observed("ansible/drift")
    assert (drift["playbook"], drift["tasks"]) == ("release", ["Write the version"])
    item, execution = agent.perform("ansible:release", hosts="web1", version="1.1")
    [change] = item["preview"]["output"]["details"][0]["changes"]
    assert "+1.1" in change["diff"]
    assert execution["state"] == "succeeded"
    assert hosts.read("web1", "version") == "1.1\n"
    verified = agent.verified(execution)
    assert verified["verdict"] == "effective"
    assert verified["evidence"] == "check mode would change nothing on web1"
    assert agent.undo(execution)["state"] == "succeeded"
    assert hosts.read("web1", "version") == "0.9\n"

    params = {"hosts": "web1", "version": "1.2"}
    called = agent.ask("POST", "/actions/ansible:release?wait=60", {"params": params})
    hosts.write("site.yml", SITE.replace("/version", "/elsewhere"))
    _, refused = agent.approve(called)
    assert refused["state"] == "failed"
    assert "have changed since the preview" in refused["result"]["error"]
    assert hosts.read("web1", "version") == "0.9\n"
