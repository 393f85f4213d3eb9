"""docs/deployment.md, executed: its blocks as they are, on hosts with a systemd of their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml

import helm_kit
from deploy_kit import DEPLOY, ROOT, parses
from guide_kit import Guide, Host, Hosts, hosts
from harness import wait_until

GUIDE = Guide("deployment.md")
OPERATIONS = Guide("operations.md")
#: Every block of the guide, and what runs it: the walk or another test here, or another module.
RUNS = {
    ("Secrets", "make-secrets"): "the walk",
    ("Compose", "docker compose"): "a test here",
    ("Redis on a host", "make-secrets"): "the walk",
    ("Redis on a host", "apt-get"): "the walk",
    ("Boyd on a host", "python3 -m venv"): "the walk",
    ("Boyd on a host", "boyd-beat.env"): "the walk",
    ("Boyd on a host", "disable --now"): "the walk",
    ("Kubernetes", "apply -k"): "a test here",
    ("Helm", "helm -n boyd install"): "a test here",
    ("The first key", "keys create"): "the walk",
    ("TLS", "proxy_pass"): "tests/integration/test_production.py",
    ("Failover", "sentinel failover"): "tests/faults/test_failover.py, as Watched.hand_over",
    ("Artefacts", "sha256sum"): "a test here",
    ("Rotate secrets", "new="): "the walk",
    ("Rotate secrets", "sed -i -E"): "the walk",
    ("Rotate secrets", "try-restart"): "the walk",
    ("Backup", "--rdb"): "the walk",
    ("Backup", "audit export"): "the walk",
    ("Backup", "dump.rdb"): "the walk",
    ("Backup", "freeze --all"): "the walk",
}


def test_something_runs_every_block_of_the_guide() -> None:
    GUIDE.check_runs(RUNS)


# systemd

#: How a shell gets the settings of the API, and `boyd`.
SETTINGS = """set -a; . /etc/boyd/boyd.env; . /etc/boyd/boyd-api.env; set +a
boyd() { /opt/boyd/bin/boyd "$@"; }
"""
#: Findings of the doctor, by subject.
Findings = dict[str, dict[str, str]]


class Walk:
    """An administrator who does what the guide says, on the hosts that it speaks of."""

    def __init__(self, network: Hosts) -> None:
        self._network = network
        self.redis, self.alpha = network.add("redis"), network.add("alpha")
        self.done: set[tuple[str, str]] = set()

    def do(self, host: Host, heading: str, marker: str, before: str = "") -> str:
        """Run a block of the guide; its output."""
        self.done.add((heading, marker))
        return self._type(host, before + GUIDE.block(heading, marker))

    def set_up(self) -> None:
        """Follow the guide from the secrets to processes."""
        self.do(self.redis, "Secrets", "make-secrets")
        self.do(self.alpha, "Redis on a host", "make-secrets")
        self.alpha.copy_to(self.redis, "deploy/secrets/users.acl")
        self.do(self.redis, "Redis on a host", "apt-get")
        self.alpha.run("cp deploy/agent/agent.toml . && mkdir plugins")
        self.do(self.alpha, "Boyd on a host", "python3 -m venv")
        self.do(self.alpha, "Boyd on a host", "boyd-beat.env")

    def make_keys(self) -> set[str]:
        """Make the first keys; their ids."""
        output = self.do(self.alpha, "The first key", "keys create")
        return set(re.findall("^boyd_([a-z0-9]+)_", output, re.MULTILINE))

    def keys(self) -> set[str]:
        """The ids of the keys that there are."""
        keys = json.loads(self.alpha.run(f"{SETTINGS}boyd keys list -o json"))
        return {key["id"] for key in keys}

    def findings(self) -> Findings:
        """The findings of the doctor, by subject."""
        report = json.loads(self.alpha.run(f"{SETTINGS}boyd doctor -o json || true"))
        return {finding["subject"]: finding for finding in report["findings"]}

    def wait_for(self, workers: int) -> Findings:
        """Wait until so many workers are alive, and nothing is wrong; the findings."""

        def healthy_findings() -> Findings | None:
            findings = self.findings()
            alive = findings["workers"]["what"].startswith(f"{workers} workers")
            errors = [finding for finding in findings.values() if finding["level"] == "error"]
            return findings if alive and not errors else None

        findings: Findings = wait_until(healthy_findings, 60)
        return findings

    def add_host(self) -> Host:
        """Add a host with workers."""
        host = self._network.add("beta")
        self.alpha.copy_to(host, "deploy/secrets", "agent.toml", "plugins")
        self.do(host, "Boyd on a host", "python3 -m venv")
        return host

    def rotate_secrets(self, *others: Host) -> None:
        """Give workers another password, and everything another secret for approvals."""
        url = self.do(self.redis, "Rotate secrets", "new=").splitlines()[-1]
        for host in (self.alpha, *others):
            host.run(f"echo {url} > /etc/boyd/secrets/redis-url")
            host.run("systemctl restart boyd-worker boyd-act")
        self.do(self.redis, "Rotate secrets", "sed -i -E")
        self.do(self.alpha, "Rotate secrets", "try-restart")
        for host in others:
            self.alpha.copy_to(host, "deploy/secrets/approval-secret")
            host.run(GUIDE.block("Rotate secrets", "try-restart").partition("\n")[2])

    def mend_users(self) -> None:
        """Mend the rules of users as the page on operations says."""
        self._type(self.redis, OPERATIONS.block("Upgrade and roll back", "acl load"))

    def add_dashboards(self) -> list[str]:
        """Give Grafana its dashboards; what it then has where it looks for them."""
        unit = "/etc/systemd/system/grafana-server.service"
        self.alpha.run(f"printf '[Service]\nExecStart=/bin/sleep inf\n' > {unit}")
        self.alpha.run("mkdir -p /etc/grafana/provisioning/dashboards")
        self.alpha.run(OPERATIONS.block("Grafana"))
        provisioning = self.alpha.run("cat /etc/grafana/provisioning/dashboards/*")
        [provider] = yaml.safe_load(provisioning)["providers"]
        return self.alpha.run(f"ls {provider['options']['path']}").split()

    def back_up(self) -> None:
        """Back up."""
        self.do(self.redis, "Backup", "--rdb")
        self.do(self.alpha, "Backup", "audit export", SETTINGS)

    def restore(self) -> None:
        """Restore the backup, and start everything again."""
        units = "boyd-worker boyd-act boyd-beat boyd-api boyd-archive"
        self.alpha.run(f"systemctl stop {units}")
        self.do(self.redis, "Backup", "dump.rdb")
        self.do(self.alpha, "Backup", "freeze --all", SETTINGS)
        self.alpha.run(f"systemctl start {units}")

    def _type(self, host: Host, text: str) -> str:
        """Run a block with the password of the administrator of Redis; its output."""
        if "PASSWORD" in text:
            url = self.alpha.run("cat deploy/secrets/redis-url-admin")
            text = text.replace("PASSWORD", url.split(":")[2].partition("@")[0])
        return host.run(text)


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    """The deployment, set up on two hosts."""
    with hosts(tmp_path) as network:
        reader = Walk(network)
        reader.set_up()
        yield reader


@pytest.mark.real
@pytest.mark.long
def test_a_deployment_by_the_guide_comes_through_all_that_the_guide_describes(walk: Walk) -> None:
    first = walk.make_keys()
    walk.wait_for(workers=2)

    rules = walk.redis.run("cat /etc/redis/users.acl")
    walk.redis.run("sed -i 's/^user default off .*/user default off/' /etc/redis/users.acl")
    walk.mend_users()
    assert walk.redis.run("cat /etc/redis/users.acl") == rules
    walk.redis.run("systemctl restart redis-server")
    assert walk.keys() == first
    assert walk.add_dashboards() == sorted(file.name for file in DEPLOY.glob("grafana/*.json"))

    beta = walk.add_host()
    before = walk.wait_for(workers=4)["approvals"]["what"]
    walk.rotate_secrets(beta)
    assert walk.wait_for(workers=4)["approvals"]["what"] != before
    walk.do(beta, "Boyd on a host", "disable --now")

    walk.back_up()
    walk.restore()
    assert walk.keys() == first
    assert "restored from a backup" in walk.wait_for(workers=2)["freeze"]["what"]
    assert walk.done == {key for key, test in RUNS.items() if test == "the walk"}


# Containers


def calls(folder: Path, heading: str, marker: str, *programs: str) -> list[list[str]]:
    """Run a block beside a copy of `deploy`; the calls of programs, which do not run."""
    shutil.copytree(DEPLOY, folder / "deploy", ignore=shutil.ignore_patterns("secrets"))
    note = """() { printf '%s\\n' "${FUNCNAME[0]}" "$@" '' >> calls; }\n"""
    script = "set -e\n" + "".join(name + note for name in programs) + GUIDE.block(heading, marker)
    subprocess.run(["bash", "-c", script], cwd=folder, check=True, capture_output=True)
    return [call.split("\n") for call in (folder / "calls").read_text().strip().split("\n\n")]


def test_the_commands_for_compose_name_services_and_commands_that_exist(tmp_path: Path) -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    for _, compose, verb, *rest in calls(tmp_path, "Compose", "docker compose", "docker"):
        assert compose == "compose"
        if verb == "up":
            scaled = [word.partition("=")[0] for word in rest if "=" in word]
            assert services.keys() >= set(scaled)
        else:
            service, *command = [word for word in rest if word != "--rm"]
            assert service in services
            assert parses(command[1:] if verb == "exec" else command)


def objects(*command: str) -> list[dict[str, Any]]:
    """The manifests that a program makes without a cluster."""
    done = helm_kit.run(*command)
    assert done.returncode == 0, (command, done.stderr)
    return list(yaml.safe_load_all(done.stdout))


@pytest.mark.long
@pytest.mark.parametrize("heading", ["Kubernetes", "Helm"])
def test_the_commands_for_kubernetes_make_objects_that_fit_each_other(
    heading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("agent.toml").write_text('id = "shop"\n')
    manifests: list[dict[str, Any]] = []
    for program, *words in calls(tmp_path, heading, "boyd", "kubectl", "helm"):
        if "create" in words and "exec" not in words:
            manifests += objects(program, *words, "--dry-run=client", "--output=yaml")
        elif "apply" in words:
            manifests += objects(program, "kustomize", words[-1])
        elif "install" in words:
            manifests += objects(program, *[word.replace("install", "template") for word in words])
        elif "exec" in words:
            assert parses(words[words.index("--") + 2 :])
        else:
            name, _, value = words[-1].partition("=")
            assert {"matchLabels": {name: value}} in selectors(manifests)

    [secret] = [manifest for manifest in manifests if manifest["kind"] == "Secret"]
    mounted = set(re.findall(r"'key': '([a-z-]+)', 'path'", str(manifests)))
    assert {"Namespace", "Deployment"} <= {manifest["kind"] for manifest in manifests}
    assert {"redis-url-worker", "audit-key"} <= mounted <= secret["data"].keys()


def selectors(manifests: list[dict[str, Any]]) -> list[Any]:
    """The namespaces that network policies let in."""
    policies = [manifest["spec"] for manifest in manifests if manifest["kind"] == "NetworkPolicy"]
    sides = [side for spec in policies for rule in spec.get("ingress", ()) for side in rule["from"]]
    return [side["namespaceSelector"] for side in sides if "namespaceSelector" in side]


# Artefacts


@pytest.mark.long
def test_artefacts_that_were_changed_are_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "boyd-1-py3-none-any.whl"
    with ZipFile(wheel, "w") as files:
        files.writestr(
            "boyd-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: boyd\nVersion: 1\n"
        )
        files.writestr("boyd-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        files.writestr("boyd-1.dist-info/RECORD", "")
    locked = f"./{wheel.name} --hash=sha256:{sha256(wheel.read_bytes()).hexdigest()}\n"
    (tmp_path / "boyd-embedded-requirements.txt").write_text(locked)
    sums, install = GUIDE.block("Artefacts").splitlines()
    subprocess.run("sha256sum *.* > SHA256SUMS", shell=True, cwd=tmp_path, check=True)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "site"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")

    def succeeds(command: str) -> bool:
        done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, check=False)
        return done.returncode == 0

    assert succeeds(sums)
    assert succeeds(install)
    with wheel.open("ab") as file:
        file.write(b"more")
    assert not succeeds(sums)
    assert not succeeds(install)
