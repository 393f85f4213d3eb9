from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from boyd import Agent
from boyd.errors import PluginError
from boyd.models import Observation, Situation, SituationAssessment
from boyd.plugins.http_monitor import HttpMonitor
from boyd.testing import Lab
from kit import overdue
from plugin_kit import Rig, Site, site

RESTARTED: list[str] = []


def remember_restart(endpoint_id: str) -> str:
    RESTARTED.append(endpoint_id)
    return f"restarted {endpoint_id}"


def refuse_restart(endpoint_id: str) -> bool:
    return False


FUNCTION = {"type": "function", "function": f"{__name__}:remember_restart"}


@pytest.fixture(autouse=True)
def _nothing_restarted() -> None:
    RESTARTED.clear()


@pytest.fixture
def web() -> Iterator[Site]:
    with site() as served:
        yield served


@pytest.fixture
def nowhere() -> str:
    """A URL where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def endpoint(url: str, id: str = "api", **more: Any) -> dict[str, Any]:
    return {"id": id, "name": id.upper(), "url": url, "timeout": 120, **more}


def rig(*endpoints: dict[str, Any], **options: Any) -> Rig:
    return Rig(HttpMonitor(endpoints=list(endpoints), **options))


def fail(monitor: Rig, times: int) -> Situation:
    for _ in range(times):
        observations = monitor.observe()
    return monitor.orient(observations)


def test_only_the_histories_of_failing_endpoints_are_read(
    web: Site, nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor = rig(endpoint(web.url, "up"), endpoint(nowhere, "down"))
    observations = monitor.observe()
    read: list[str] = []
    get_many = monitor.state.get_many

    def note(keys: list[str]) -> dict[str, Any]:
        read.extend(keys)
        return get_many(keys)

    monkeypatch.setattr(monitor.state, "get_many", note)
    monitor.orient(observations)
    assert read == ["endpoint:down"]


@pytest.mark.parametrize(
    "data", [{"endpointId": "api", "healthy": False, "consecutiveFailures": 9}, {}]
)
def test_an_observation_that_was_sent_restarts_no_endpoint(web: Site, data: dict[str, Any]) -> None:
    monitor = HttpMonitor(endpoints=[endpoint(f"{web.url}/health", restart=FUNCTION)])
    lab = Lab(Agent("a", plugins=[monitor]))
    lab.intake(Observation(source="http-monitor/health-check", type="event", data=data))
    result = lab.run()

    assert result.observations[-1].source == "intake:http-monitor/health-check"
    assert not result.problems
    assert result.decision is None or result.decision.is_no_op
    assert RESTARTED == []


def test_a_healthy_endpoint_is_one_info_metric(web: Site) -> None:
    [observation] = rig(endpoint(f"{web.url}/health")).observe()
    assert (observation.source, observation.type, observation.severity) == (
        "http-monitor/health-check",
        "metric",
        "info",
    )
    assert observation.data["endpointId"] == "api"
    assert observation.data["statusCode"] == 200


def test_severity_rises_at_the_threshold(nowhere: str) -> None:
    monitor = rig(endpoint(nowhere, failure_threshold=3))
    assert [monitor.observe()[0].severity for _ in range(4)] == [
        "warning",
        "warning",
        "error",
        "error",
    ]


def test_a_critical_endpoint_is_critical_only_at_the_threshold(nowhere: str) -> None:
    monitor = rig(endpoint(nowhere, failure_threshold=2, critical=True))
    assert [monitor.observe()[0].severity for _ in range(2)] == ["warning", "critical"]


def test_one_success_ends_a_row_of_failures(web: Site) -> None:
    monitor = rig(endpoint(web.url))
    web.status = 500
    monitor.observe()
    web.status = 200
    monitor.observe()
    web.status = 500
    assert monitor.observe()[0].data["consecutiveFailures"] == 1


def test_an_unexpected_status_is_a_failure_that_names_both(web: Site) -> None:
    web.status = 404
    [observation] = rig(endpoint(web.url, expected_status=204)).observe()
    assert observation.data["error"] == "answered 404, expected 204"


def test_an_expected_redirect_is_not_followed(web: Site) -> None:
    web.status, web.headers = 302, {"Location": "/elsewhere"}
    [observation] = rig(endpoint(web.url, expected_status=302)).observe()
    assert observation.data["healthy"] is True
    assert len(web.requests) == 1


def test_headers_are_sent_but_never_carried_along_a_redirect(web: Site) -> None:
    with site() as other:
        web.status, web.headers = 302, {"Location": other.url}
        rig(endpoint(web.url, headers={"X-Key": "hush"})).observe()
        assert web.requests[0][2]["X-Key"] == "hush"
        assert other.requests == []


def test_no_secret_of_an_endpoint_reaches_an_observation(web: Site, nowhere: str) -> None:
    def secret(url: str) -> str:
        return url.replace("http://", "http://user:hush@") + "/health?token=hush"

    monitor = rig(
        endpoint(secret(web.url), "up", headers={"Authorization": "hush"}),
        endpoint(secret(nowhere), "down", headers={"Authorization": "hush"}),
        endpoint(secret(web.url), "bad-header", headers={"X-Key": "hush\n"}),
    )
    observations = monitor.observe()
    assert [o.data["healthy"] for o in observations] == [True, False, False]
    texts = [o.to_json() for o in observations] + [
        repr(monitor.plugin.options.endpoints[1].headers)
    ]
    assert not [text for text in texts if "hush" in text]


def test_a_refused_connection_is_reported_in_plain_words(nowhere: str) -> None:
    [observation] = rig(endpoint(nowhere)).observe()
    assert observation.data["error"] == "connection failed: Connection refused"


def test_a_check_ends_when_its_time_is_up(web: Site) -> None:
    release = threading.Event()
    web.hold = release.wait
    began = time.monotonic()
    [observation] = rig(endpoint(web.url, timeout=0.2)).observe()
    took = time.monotonic() - began
    release.set()
    assert observation.data["error"] == "no answer within 0.2 s"
    assert took < 60


def test_a_server_that_drips_its_headers_costs_one_thread_and_no_more_than_the_time_limit() -> None:
    # The server drips far more often than that, also on a busy machine.
    with Dripping() as url:
        monitor = rig(endpoint(url, timeout=2))
        first = monitor.observe()[0].data["error"]
        threads = set(threading.enumerate())
        second = monitor.observe()[0].data["error"]
        assert (first, second) == (
            "no answer within 2 s",
            "the previous check still hangs",
        )
        # Those of other tests may end meanwhile.
        assert set(threading.enumerate()) <= threads


class Dripping:
    """A server that never finishes its headers."""

    def __enter__(self) -> str:
        self.stopped = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def _serve(self) -> None:
        connection, _ = self.listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not self.stopped.wait(0.05):
                connection.sendall(b"x")

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.thread.join()
        self.listener.close()


def test_the_body_of_an_answer_is_not_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9000000000\r\n\r\nbegin")
                connection.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        [observation] = rig(endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}")).observe()
        thread.join(120)
    assert observation.data["healthy"] is True
    assert not thread.is_alive()


def test_the_endpoints_of_a_shard_are_checked_at_the_same_time(web: Site) -> None:
    together = threading.Barrier(10, timeout=120)
    web.hold = together.wait
    monitor = rig(*(endpoint(web.url, f"e{n}") for n in range(10)))
    assert [o.data["healthy"] for o in monitor.observe()] == [True] * 10


def test_the_work_is_split_into_shards_of_endpoint_ids(web: Site) -> None:
    monitor = rig(*(endpoint(web.url, f"e{n}") for n in range(5)), shard_size=2)
    observer = monitor.host.observers["http-monitor:health_check"]
    assert observer.call("partition", ctx=monitor.ctx) == [["e0", "e1"], ["e2", "e3"], ["e4"]]
    assert [o.data["endpointId"] for o in monitor.observe()] == [f"e{n}" for n in range(5)]


def test_the_observer_runs_at_the_check_interval(web: Site) -> None:
    monitor = rig(endpoint(web.url), check_interval=7)
    assert monitor.host.observers["http-monitor:health_check"].interval == 7


def test_only_the_last_checks_are_remembered(web: Site) -> None:
    monitor = rig(endpoint(web.url), max_history=3)
    for _ in range(5):
        monitor.observe()
    assert len(monitor.state.get("endpoint:api")["checks"]) == 3


def test_a_check_that_is_delivered_twice_counts_once(nowhere: str) -> None:
    monitor = rig(endpoint(nowhere))
    monitor.observe()
    monitor.iteration = 0
    assert monitor.observe()[0].data["consecutiveFailures"] == 1


def test_a_check_outside_of_an_iteration_leaves_no_trace(nowhere: str) -> None:
    monitor = rig(endpoint(nowhere))
    monitor.iteration = None
    observer = monitor.host.observers["http-monitor:health_check"]
    observer.call("observe", ctx=monitor.ctx, shard=None)
    assert monitor.state.values == {}


def test_failures_are_counted_across_workers(nowhere: str) -> None:
    first, other = rig(endpoint(nowhere)), rig(endpoint(nowhere))
    other.state = first.state
    first.observe()
    other.iteration = 1
    assert other.observe()[0].data["consecutiveFailures"] == 2


def test_workers_that_write_at_the_same_time_lose_nothing(web: Site) -> None:
    monitors = [rig(endpoint(web.url)) for _ in range(8)]
    for number, monitor in enumerate(monitors):
        monitor.state, monitor.iteration = monitors[0].state, number
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(Rig.observe, monitors))
    assert len(monitors[0].state.get("endpoint:api")["checks"]) == 8


def test_healthy_endpoints_make_a_certain_assessment(web: Site) -> None:
    monitor = rig(endpoint(web.url))
    situation = monitor.orient(monitor.observe())
    assert situation.summary == "The endpoint is healthy"
    assert situation.confidence == 1.0
    assert monitor.decide(situation) is None


def test_an_endpoint_without_a_check_is_not_called_healthy(web: Site) -> None:
    monitor = rig(endpoint(web.url), endpoint(web.url, "b"), endpoint(web.url, "c"))
    checked = monitor.observe()

    assert monitor.orient(checked).summary == "All 3 endpoints are healthy"
    lost = monitor.orient(checked[:2])
    assert lost.summary == "2 endpoints are healthy, 1 was not checked"
    assert lost.evidence("http-monitor:analyze_failures")["unchecked"] == 1
    assert monitor.orient(checked[:1]).summary == "1 endpoint is healthy, 2 were not checked"


def test_an_iteration_without_checks_is_no_bill_of_health(web: Site) -> None:
    assert rig(endpoint(web.url)).orient([]).summary == "No endpoint was checked in this iteration"


def test_an_iteration_in_which_no_check_was_due_says_so(web: Site) -> None:
    monitor = rig(endpoint(web.url))
    monitor.not_due = {"http-monitor:health_check": monitor.clock()}
    assert monitor.orient([]).summary == "No endpoint was due for a check in this iteration"


def test_findings_read_as_in_the_reference(web: Site, nowhere: str) -> None:
    monitor = rig(
        endpoint(nowhere, name="API Server"), endpoint(web.url, "b"), endpoint(web.url, "c")
    )
    situation = fail(monitor, 5)
    [assessment] = situation.assessments
    assert assessment.findings == [
        "1 endpoint is unhealthy",
        "API Server: 5 consecutive failures",
    ]
    assert assessment.confidence == 0.9


def test_evidence_and_anomaly_name_the_endpoint(web: Site, nowhere: str) -> None:
    situation = fail(rig(endpoint(nowhere), endpoint(web.url, "b"), endpoint(web.url, "c")), 3)
    assert situation.evidence("http-monitor:analyze_failures") == {
        "checked": 3,
        "unchecked": 0,
        "unhealthyCount": 1,
        "pattern": "isolated",
        "unhealthy": [
            {
                "endpointId": "api",
                "name": "API",
                "failures": 3,
                "threshold": 3,
                "overThreshold": True,
                "inCooldown": False,
                "restartable": False,
                "critical": False,
                "error": "connection failed: Connection refused",
            }
        ],
    }
    [anomaly] = situation.anomalies
    assert (anomaly.type, anomaly.severity) == ("endpoint-down", "high")
    assert anomaly.affected_resources == ["api"]


def test_one_of_one_is_no_cascade(nowhere: str) -> None:
    situation = fail(rig(endpoint(nowhere)), 1)
    assert situation.evidence("http-monitor:analyze_failures")["pattern"] == "isolated"


@pytest.mark.parametrize(("down", "up", "pattern"), [(2, 2, "cascading"), (2, 3, "isolated")])
def test_half_of_the_endpoints_make_a_cascade(
    web: Site, nowhere: str, down: int, up: int, pattern: str
) -> None:
    failing = [endpoint(nowhere, f"down{n}", restart=FUNCTION) for n in range(down)]
    healthy = [endpoint(web.url, f"up{n}") for n in range(up)]
    situation = fail(rig(*failing, *healthy), 1)
    assert situation.evidence("http-monitor:analyze_failures")["pattern"] == pattern
    assert len(situation.correlations) == (1 if pattern == "cascading" else 0)


def test_nothing_is_restarted_in_a_cascade(nowhere: str) -> None:
    monitor = rig(*(endpoint(nowhere, id, restart=FUNCTION) for id in ("a", "b")))
    situation = fail(monitor, 5)
    assert monitor.decide(situation) is None
    assert "none is restarted" in str(situation.assessments[0].contributing_factor)


def test_hundreds_of_failures_do_not_flood_the_situation(nowhere: str) -> None:
    monitor = rig(*(endpoint(nowhere, f"e{n}") for n in range(250)))
    situation = monitor.orient(
        [
            Observation(
                source="http-monitor/health-check",
                type="metric",
                data={"endpointId": f"e{n}", "healthy": False, "consecutiveFailures": 1},
            )
            for n in range(250)
        ]
    )
    [assessment] = situation.assessments
    assert assessment.findings[0] == "250 endpoints are unhealthy"
    assert assessment.findings[-1] == "and 230 more"


def test_the_first_endpoint_over_its_threshold_is_restarted(web: Site, nowhere: str) -> None:
    healthy = [endpoint(web.url, f"up{n}") for n in range(4)]
    monitor = rig(
        endpoint(nowhere, "patient", failure_threshold=9, restart=FUNCTION),
        endpoint(nowhere, "helpless", failure_threshold=1),
        endpoint(nowhere, "api", name="API Server", failure_threshold=2, restart=FUNCTION),
        *healthy,
    )
    decision = monitor.decide(fail(monitor, 2))
    assert decision is not None
    assert decision.action == "http-monitor:restartService"
    assert decision.params == {"endpointId": "api"}
    assert decision.rationale == "Endpoint API Server has failed 2 consecutive times"
    assert (decision.confidence, decision.risk, decision.requires_approval) == (0.85, "low", False)


def test_below_the_threshold_nothing_is_decided(nowhere: str) -> None:
    monitor = rig(endpoint(nowhere, failure_threshold=3, restart=FUNCTION))
    assert monitor.decide(fail(monitor, 2)) is None


def test_restarting_a_critical_endpoint_needs_approval(nowhere: str) -> None:
    monitor = rig(endpoint(nowhere, failure_threshold=1, critical=True, restart=FUNCTION))
    decision = monitor.think()
    assert decision is not None
    assert (decision.risk, decision.requires_approval) == ("medium", True)


def test_the_words_of_another_plugin_restart_nothing(nowhere: str) -> None:
    assessment = SituationAssessment(
        source="other:orienter",
        findings=["unhealthy failure"],
        confidence=1.0,
        data={"unhealthy": [{"endpointId": "api"}]},
    )
    monitor = rig(endpoint(nowhere, restart=FUNCTION))
    assert monitor.decide(Situation(assessments=[assessment])) is None


def test_a_second_monitor_under_another_id_keeps_to_itself(nowhere: str) -> None:
    plugin = HttpMonitor(endpoints=[endpoint(nowhere, failure_threshold=1, restart=FUNCTION)])
    plugin.id = "site-b"
    decision = Rig(plugin).think()
    assert decision is not None
    assert decision.action == "site-b:restartService"


def test_a_restart_starts_the_cooldown_and_forgives_no_failures(
    nowhere: str,
) -> None:
    monitor = rig(endpoint(nowhere, failure_threshold=1, cooldown=60, restart=FUNCTION))
    assert monitor.think() is not None
    result = monitor.result("restartService", {"endpointId": "api"})
    assert result.success
    assert result.output == {"endpointId": "api", "output": "restarted api"}
    assert RESTARTED == ["api"]
    assert monitor.observe()[0].data["consecutiveFailures"] == 2
    assert monitor.think() is None


def test_a_useless_restart_is_not_repeated_while_the_endpoint_is_down(nowhere: str) -> None:
    options: dict[str, Any] = {"failure_threshold": 2, "cooldown": 0, "restart": FUNCTION}
    lab = Lab(Agent("test", plugins=[HttpMonitor(endpoints=[endpoint(nowhere, **options)])]))
    for _ in range(8):
        lab.run()
        for name in lab.client.zrange("boyd:{test}:due", 0, -1):
            if name.startswith("verify:"):
                execution = name.removeprefix("verify:")
                lab.client.hset(f"boyd:{{test}}:execution:{execution}", "verifyUntil", 1)
                overdue(lab, name)

    assert RESTARTED == ["api"]
    [hold] = lab.store.holds.all()
    assert (hold.kind, hold.symptoms) == ("no effect", ["endpoint on api"])


def test_after_the_cooldown_it_may_be_restarted_again(nowhere: str) -> None:
    monitor = rig(endpoint(nowhere, failure_threshold=1, cooldown=60, restart=FUNCTION))
    monitor.result("restartService", {"endpointId": "api"})
    monitor.clock.forward(59)
    assert monitor.think() is None
    monitor.clock.forward(1)
    assert monitor.think() is not None


def test_a_failed_restart_still_starts_the_cooldown(nowhere: str) -> None:
    restart = {"type": "function", "function": f"{__name__}:refuse_restart"}
    monitor = rig(endpoint(nowhere, failure_threshold=1, restart=restart))
    assert monitor.think() is not None
    result = monitor.result("restartService", {"endpointId": "api"})
    assert not result.success
    assert "returned False" in str(result.error)
    assert monitor.think() is None
    assert monitor.observe()[0].data["consecutiveFailures"] == 3


def test_a_crash_during_a_restart_still_starts_the_cooldown(
    nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    def crash(endpoint_id: str) -> None:
        raise Crash

    monitor = rig(endpoint(nowhere, failure_threshold=1, restart=FUNCTION))
    monkeypatch.setattr(sys.modules[__name__], "remember_restart", crash)
    with pytest.raises(Crash):
        monitor.act("restartService", {"endpointId": "api"})
    assert monitor.think() is None


def test_a_command_restart_runs_its_arguments_as_they_are(tmp_path: Path) -> None:
    code = "import pathlib, sys; pathlib.Path('made').write_text(sys.argv[1]); print('done')"
    argv = [sys.executable, "-c", code, "a b; touch $HOME *"]
    restart = {"type": "command", "argv": argv, "cwd": str(tmp_path)}
    monitor = rig(endpoint("http://x", restart=restart))
    result = monitor.result("restartService", {"endpointId": "api"})
    assert result.output == {"endpointId": "api", "output": "done"}
    assert (tmp_path / "made").read_text() == "a b; touch $HOME *"


def test_a_failed_command_tells_its_code_and_the_end_of_its_output() -> None:
    code = "import sys; print('x' * 9000); print('because', file=sys.stderr); sys.exit(3)"
    restart = {"type": "command", "argv": [sys.executable, "-uc", code]}
    result = rig(endpoint("http://x", restart=restart)).result(
        "restartService", {"endpointId": "api"}
    )
    assert not result.success
    assert "ended with code 3" in str(result.error)
    assert str(result.error).endswith("because")
    assert len(str(result.error)) < 4300


def test_a_command_that_does_not_exist_is_a_failed_restart() -> None:
    restart = {"type": "command", "argv": ["/no/such/program"]}
    result = rig(endpoint("http://x", restart=restart)).result(
        "restartService", {"endpointId": "api"}
    )
    assert "cannot be started" in str(result.error)


def test_a_command_that_takes_too_long_is_killed_with_all_it_started(tmp_path: Path) -> None:
    argv = ["/bin/sh", "-c", "sleep 600 & echo $! > pid; wait"]
    restart = {"type": "command", "argv": argv, "cwd": str(tmp_path), "timeout": 2}
    result = rig(endpoint("http://x", restart=restart)).result(
        "restartService", {"endpointId": "api"}
    )
    assert "took longer than 2 s" in str(result.error)
    assert _is_gone(int((tmp_path / "pid").read_text()))


def test_a_command_that_leaves_a_service_running_does_not_wait_for_it(tmp_path: Path) -> None:
    argv = ["/bin/sh", "-c", "sleep 600 & echo $! > pid"]
    restart = {"type": "command", "argv": argv, "cwd": str(tmp_path), "timeout": 300}
    began = time.monotonic()
    result = rig(endpoint("http://x", restart=restart)).result(
        "restartService", {"endpointId": "api"}
    )
    service = psutil.Process(int((tmp_path / "pid").read_text()))
    running = service.is_running()
    service.kill()
    assert result.success
    assert running
    assert time.monotonic() - began < 150


def _is_gone(pid: int) -> bool:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


def test_an_http_restart_posts_its_body_and_headers(web: Site) -> None:
    web.status = 202
    restart = {"type": "http", "url": f"{web.url}/restart?key=hush", "body": {"service": "api"}}
    restart["headers"] = {"X-Key": "hush"}
    result = rig(endpoint("http://x", restart=restart)).result(
        "restartService", {"endpointId": "api"}
    )
    assert result.success
    method, path, headers, body = web.requests[0]
    assert (method, path, headers["X-Key"]) == ("POST", "/restart?key=hush", "hush")
    assert body == b'{"service": "api"}'
    assert "hush" not in result.to_json()


def test_an_http_restart_needs_a_2xx_answer(web: Site) -> None:
    web.status = 302
    restart = {"type": "http", "url": f"{web.url}/restart"}
    result = rig(endpoint("http://x", restart=restart)).result(
        "restartService", {"endpointId": "api"}
    )
    assert not result.success
    assert "answered 302" in str(result.error)


def test_an_http_restart_that_nobody_answers_does_not_tell_the_secret(nowhere: str) -> None:
    restart = {"type": "http", "url": f"{nowhere}/restart?key=hush"}
    result = rig(endpoint("http://x", restart=restart)).result(
        "restartService", {"endpointId": "api"}
    )
    assert not result.success
    assert "hush" not in result.to_json()


def test_a_dry_run_tells_and_does_nothing(nowhere: str) -> None:
    monitor = rig(endpoint(nowhere, restart=FUNCTION))
    result = monitor.act("restartService", {"endpointId": "api"}, "dry_run")
    assert result == f"Would call {__name__}:remember_restart('api')"
    assert RESTARTED == []
    assert monitor.state.values == {}


def test_an_unknown_endpoint_cannot_be_restarted(nowhere: str) -> None:
    with pytest.raises(LookupError, match="no endpoint 'other'"):
        rig(endpoint(nowhere)).act("restartService", {"endpointId": "other"})


def test_an_endpoint_without_a_restart_says_so(nowhere: str) -> None:
    result = rig(endpoint(nowhere)).result("restartService", {"endpointId": "api"})
    assert "no restart configured" in str(result.error)


def test_the_action_is_declared_as_in_the_reference(nowhere: str) -> None:
    action = rig(endpoint(nowhere)).host.actions["http-monitor:restartService"]
    assert (action.risk, action.autonomy.mode, action.autonomy.min_confidence) == (
        "medium",
        "auto",
        0.7,
    )
    assert not action.idempotent
    assert action.target_of({"endpointId": "api"}) == "api"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpoints": []}, "at least 1"),
        ({"endpoints": [endpoint("http://x"), endpoint("http://y")]}, "same id: api"),
        ({"endpoints": [endpoint("ftp://x")]}, "http or https"),
        ({"endpoints": [endpoint("http://x", failure_threshold=0)]}, "greater than or equal to 1"),
        ({"endpoints": [endpoint("http://x", restart={"type": "command", "argv": "a b"})]}, "list"),
        ({"endpoints": [endpoint("http://x", restart={"type": "shell"})]}, "type"),
        ({"endpoints": [endpoint("http://x")], "checkInterval": 3}, "checkInterval"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PluginError, match=message):
        HttpMonitor(**options)


def test_the_endpoints_are_shown_with_their_last_checks(web: Site, nowhere: str) -> None:
    monitor = rig(endpoint(web.url, "up"), endpoint(nowhere, "gone"), max_history=2)
    for _ in range(3):
        monitor.observe()
        monitor.clock.forward(1)
    up, down = show_endpoints(monitor)

    assert (up["id"], up["healthy"], up["consecutiveFailures"]) == ("up", True, 0)
    assert (down["id"], down["healthy"], down["consecutiveFailures"]) == ("gone", False, 3)
    assert len(down["checks"]) == 2
    assert down["checks"][0]["at"] > down["checks"][1]["at"]
    assert "headers" not in up


def test_an_endpoint_that_was_never_checked_is_shown_too(nowhere: str) -> None:
    [endpoint_shown] = show_endpoints(rig(endpoint(nowhere)))

    assert (endpoint_shown["healthy"], endpoint_shown["checks"]) == (None, [])


def show_endpoints(monitor: Rig) -> Any:
    """The reply of the plugin's endpoint."""
    return monitor.host.endpoints["http-monitor:list_endpoints"].call("handle", ctx=monitor.ctx)[
        "endpoints"
    ]
