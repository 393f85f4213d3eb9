from __future__ import annotations

import os
import threading
from typing import Any

import psutil
import pytest

from boyd.errors import PluginError
from boyd.models import Situation
from boyd.plugins.host_metrics import HostMetrics, LoadEvidence
from harness import wait_until
from plugin_kit import Rig

HOST = "here"
NEVER = {"warning": 1000.0, "error": 1000.0}
ALWAYS = {"warning": 0.0, "error": 1000.0}
QUIET = {"cpu": NEVER, "memory": NEVER, "disk": NEVER, "load": NEVER, "cpu_sample": 0.01}


def rig(**options: Any) -> Rig:
    return Rig(HostMetrics(**{**QUIET, **options}))


def situation(**options: Any) -> Situation:
    metrics = rig(**options)
    return metrics.orient(metrics.observe())


def test_every_measure_is_a_metric_named_after_host_and_measure() -> None:
    observations = rig().observe()
    assert [o.source for o in observations] == [
        f"host-metrics/{HOST}/{measure}" for measure in ("cpu", "memory", "load", "disk")
    ]
    assert {o.type for o in observations} == {"metric"}
    assert {o.data["host"] for o in observations} == {HOST}


def test_workers_with_names_of_their_own_are_hosts_of_their_own() -> None:
    metrics = rig(cpu=ALWAYS)
    observations = []
    for name in ("host-a", "host-b", "host-c"):
        metrics.on_host = name
        observations += metrics.observe()
    result = metrics.orient(observations)
    evidence = LoadEvidence.model_validate(result.assessments[0].data)
    assert evidence.hosts == ["host-a", "host-b", "host-c"]
    assert [anomaly.affected_resources for anomaly in result.anomalies] == [
        ["host-a"],
        ["host-b"],
        ["host-c"],
    ]
    assert result.correlations == []


def test_it_runs_on_every_host() -> None:
    assert rig().host.observers["host-metrics:measure"].scope == "every_host"


def test_each_mount_is_measured() -> None:
    disks = [o.data["mount"] for o in rig(mounts=["/", "/tmp"]).observe()[3:]]
    assert disks == ["/", "/tmp"]


def test_load_is_reported_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (6.0, 1.0, 1.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    load = rig(load={"warning": 1.5, "error": 2}).observe()[2]
    assert (load.data["value"], load.severity) == (1.5, "warning")


@pytest.mark.parametrize(
    ("percent", "severity"), [(84.9, "info"), (85.0, "warning"), (94.9, "warning"), (95.0, "error")]
)
def test_a_threshold_counts_from_its_value_on(
    monkeypatch: pytest.MonkeyPatch, percent: float, severity: str
) -> None:
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: percent)
    assert rig(cpu={"warning": 85, "error": 95}).observe()[0].severity == severity


def test_a_mount_that_is_gone_hides_no_other_measure() -> None:
    metrics = rig(mounts=["/no/such/mount", "/"])
    observations = metrics.observe()
    assert [o.severity for o in observations[3:]] == ["error", "info"]
    [finding] = metrics.orient(observations).assessments[0].findings
    assert finding == f"{HOST}: /no/such/mount: No such file or directory"


def test_within_the_limits_all_is_well() -> None:
    result = situation()
    assert result.summary == "1 host is within its limits"
    assert result.confidence == 1.0


def test_without_measurements_nothing_is_claimed() -> None:
    assert rig().orient([]).summary == "No host was measured in this iteration"


def test_an_iteration_in_which_the_hosts_were_not_due_says_so() -> None:
    metrics = rig()
    metrics.not_due = {"host-metrics:measure": metrics.clock()}
    assert metrics.orient([]).summary == "No host was due to be measured in this iteration"


def test_the_evidence_says_which_host_is_over_which_threshold() -> None:
    result = situation(disk=ALWAYS)
    evidence = result.evidence("host-metrics:analyze_hosts")
    assert evidence["hosts"] == [HOST]
    [over] = LoadEvidence.model_validate(evidence).over
    assert (over.host, over.what, over.mount) == (HOST, "disk", "/")
    assert (over.severity, over.threshold) == ("warning", 0.0)
    assert result.anomalies[0].affected_resources == [HOST]
    assert result.summary.startswith(f"{HOST}: disk / ")


def test_several_measures_of_one_host_belong_together() -> None:
    result = situation(disk=ALWAYS, memory=ALWAYS)
    assert result.correlations[0].observations == [
        f"host-metrics/{HOST}/disk",
        f"host-metrics/{HOST}/memory",
    ]


def test_it_decides_nothing() -> None:
    host = rig().host
    assert not host.strategies
    assert not host.actions


def test_limits_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(PluginError, match="error must not be below warning"):
        HostMetrics(cpu={"warning": 90, "error": 80})


def test_a_mount_that_hangs_hides_no_other_and_keeps_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, mounts = threading.Event(), []
    measured = psutil.disk_usage

    def usage(mount: str) -> Any:
        if mount == "/dead":
            mounts.append(mount)
            server.wait(120)
        return measured("/")

    monkeypatch.setattr(psutil, "disk_usage", usage)
    monkeypatch.setattr("boyd.plugins.host_metrics.MOUNT_TIMEOUT", 0.1)
    metrics = rig(mounts=["/dead", "/"])
    first, second = metrics.observe(), metrics.observe()
    server.set()
    wait_until(lambda: "error" not in metrics.observe()[3].data)

    assert [len(first), len(second)] == [5, 5]
    assert first[3].data["error"] == "no answer within 0.1 s"
    assert second[3].data["error"] == "the previous call still hangs"
    assert "value" in first[4].data
    assert mounts[:2] == ["/dead", "/dead"]
    finding = f"{HOST}: /dead: no answer within 0.1 s"
    assert finding in [
        item for assessment in metrics.orient(first).assessments for item in assessment.findings
    ]
