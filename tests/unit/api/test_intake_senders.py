"""Intakes of an agent ask their senders for a secret or a signature instead of a key."""

from __future__ import annotations

import hmac
import json
import logging
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from api_kit import Desk, Site
from boyd import Agent
from boyd.intake import formats
from boyd.intake.sender_checks import SenderRefused
from boyd.intake.sns import SnsUnavailable
from boyd.store.keys import Keys
from boyd.testing import Lab
from boyd.text import extraction
from lab_redis import client_of
from virtual_time import VirtualTime, imaginary_server

DATA = Path(__file__).parents[2] / "data" / "intake"
SECRET = "a shared secret of the test"
WORKFLOW = (DATA / "github" / "firing.json").read_bytes()
GITHUB = "/api/v0/agents/desk/intake/github"
INTAKES = [
    {"name": "github", "auth": {"secret": "gh"}},
    {"name": "gitlab", "auth": {"secret": "gl"}},
    {"name": "lost", "use": "gitlab", "auth": {"secret": "nowhere"}},
    {"name": "cloudwatch", "auth": {"topics": ["arn:aws:sns:eu-west-1:0:alarms"]}},
    {"name": "plain", "use": "json"},
    {"name": "url", "use": "json", "auth": {"method": "query", "secret": "gh"}},
    {
        "name": "timed",
        "use": "json",
        "auth": {
            "method": "hmac",
            "header": "X-Sig",
            "timestamp": "X-Time",
            "signed": "{X-Time}.{body}",
            "secret": "gh",
        },
    },
]


@pytest.fixture
def site(server: Any, tmp_path: Path) -> Site:
    """A site whose agent has intakes, and whose API knows their secrets."""
    for name in ("gh", "gl"):
        (tmp_path / name).write_text(SECRET)
    redis = client_of(server)
    lab = Lab(Agent("desk", plugins=[Desk()], intakes=INTAKES), client=redis)
    return Site(lab, server, intake={"secrets": tmp_path})


def signature(body: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), body, "sha256").hexdigest()


def send(site: Site, headers: dict[str, str] | None = None) -> Any:
    """Send a message as GitHub does."""
    signed = {"X-Hub-Signature-256": f"sha256={signature(WORKFLOW)}", **(headers or {})}
    return site.client.post(GITHUB, data=WORKFLOW, headers=signed)


def waiting(site: Site) -> int:
    redis = client_of(site.server)
    return int(redis.llen(Keys("desk").intake))


def test_a_signed_message_is_taken_without_a_key_and_the_audit_names_its_intake(
    site: Site,
) -> None:
    answer = send(site)

    assert (answer.status_code, answer.json) == (202, {"accepted": 1})
    entries = site.get("/audit").json["entries"]
    [entry] = [record for record in entries if record["kind"] == "intake.accepted"]
    assert (entry["who"], entry["what"]) == ("intake:desk/github", {"count": "1"})


def test_the_same_signed_message_is_observed_once_whatever_else_the_request_says(
    site: Site,
) -> None:
    first = send(site)
    again = send(site, {"Idempotency-Key": "another", "X-GitHub-Delivery": "another"})

    assert (first.status_code, again.status_code) == (202, 202)
    assert waiting(site) == 1
    site.lab.run()
    assert waiting(site) == 0
    assert send(site).status_code == 202
    assert waiting(site) == 0


def send_timed(site: Site, at: float) -> int:
    """Send a message with a signed time; the status of the answer."""
    body = json.dumps({"source": "backup", "data": {}}).encode()
    stamp = str(int(at))
    headers = {"X-Time": stamp, "X-Sig": signature(f"{stamp}.".encode() + body)}
    path = "/api/v0/agents/desk/intake/timed"
    return int(site.client.post(path, data=body, headers=headers).status_code)


def test_a_message_with_a_signed_time_is_taken_once_and_only_while_it_is_fresh(site: Site) -> None:
    now = time.time()

    assert [send_timed(site, at) for at in (now, now, now - 1000)] == [202, 202, 401]
    assert waiting(site) == 1


@imaginary_server()
def test_the_clock_of_redis_tells_whether_a_message_is_fresh(
    monkeypatch: pytest.MonkeyPatch, site: Site
) -> None:
    redis = VirtualTime(monkeypatch)

    assert [send_timed(site, at) for at in (time.time(), redis.now / 1000)] == [401, 202]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Hub-Signature-256": "sha256=00"},
        {"X-Hub-Signature-256": f"sha256={signature(b'another')}"},
        {"X-Hub-Signature": f"sha1={hmac.new(SECRET.encode(), WORKFLOW, 'sha1').hexdigest()}"},
        {"Authorization": f"Bearer {SECRET}"},
    ],
)
def test_an_unsigned_message_is_refused_logged_and_counted(
    site: Site, headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "boyd.api"):
        answer = site.client.post(GITHUB, data=WORKFLOW, headers=headers)

    assert (answer.status_code, answer.json["type"]) == (401, "/problems/unauthenticated")
    assert answer.headers["WWW-Authenticate"] == 'Signature realm="boyd"'
    assert waiting(site) == 0
    text = site.client.get("/metrics", headers=site.admin).text
    assert 'boyd_intake_refused_total{format="github",reason="unauthenticated"} 1.0' in text
    assert "intake github refused, unauthenticated" in caplog.text
    assert SECRET not in caplog.text + answer.text


def test_a_key_does_not_replace_the_signature_that_the_intake_asks_for(site: Site) -> None:
    answer = site.post("/agents/desk/intake/github", json.loads(WORKFLOW))
    assert answer.status_code == 401


def test_a_key_of_one_agent_does_not_lead_past_the_signature_that_its_intake_asks_for(
    site: Site,
) -> None:
    other = site.lab.engine.entry().patched({"id": "other", "intakes": []})
    site.store.fleet.register(other)
    site.services.forget_agents()
    key = site.key("trigger", agents=["desk"])
    refused = site.client.post("/api/v0/intake/github", data=WORKFLOW, headers=key)

    assert (refused.status_code, refused.json["type"]) == (403, "/problems/forbidden")


def test_an_intake_is_found_without_the_name_of_the_only_agent(site: Site) -> None:
    path = GITHUB.replace("/agents/desk", "")
    assert site.client.post(path, data=WORKFLOW).status_code == 401
    headers = {"X-Hub-Signature-256": f"sha256={signature(WORKFLOW)}"}
    assert site.client.post(path, data=WORKFLOW, headers=headers).status_code == 202


def test_an_intake_without_a_check_of_its_own_asks_for_a_key(site: Site) -> None:
    path, body = "/agents/desk/intake/plain", {"source": "backup", "data": {}}
    assert site.client.post(f"/api/v0{path}", json=body).status_code == 401
    assert site.post(path, body).status_code == 202


def test_the_secret_of_a_sender_opens_only_its_intake(site: Site) -> None:
    headers = {"X-Gitlab-Token": SECRET}
    own = "/api/v0/agents/desk/intake/gitlab"
    body = (DATA / "gitlab" / "firing.json").read_bytes()
    assert site.client.post(own, data=body, headers=headers).status_code == 202
    for path in ("intake/json", "intake/alertmanager", "loop/trigger", "runs"):
        other = site.client.post(f"/api/v0/agents/desk/{path}", json={}, headers=headers)
        assert other.status_code == 401, path
    unknown = "/api/v0/agents/other/intake/gitlab"
    assert site.client.post(unknown, data=body, headers=headers).status_code == 401


def test_a_message_is_kept_for_later_while_its_secret_is_missing(site: Site) -> None:
    headers = {"X-Gitlab-Token": SECRET}
    answer = site.client.post("/api/v0/agents/desk/intake/lost", data=b"{}", headers=headers)
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "10"
    assert "'nowhere'" in answer.json["detail"]


def test_a_secret_in_the_url_is_kept_out_of_logs_audit_and_answers(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    url, body = "/api/v0/agents/desk/intake/url", {"source": "backup", "data": {}}

    def send_to(query: dict[str, str], key: dict[str, str] | None = None, **more: Any) -> Any:
        return site.client.post(url, query_string=query, headers=key, **{"json": body, **more})

    with caplog.at_level(logging.DEBUG):
        response = send_to({"secret": SECRET, "via": "status page"})
        others = [send_to({"secret": "wrong"}), send_to({}), send_to({}, site.admin)]
        spoilt = send_to({"secret": SECRET}, data=b"{", json=None)
        site.client.get(url, query_string={"secret": SECRET})

    assert (response.status_code, response.json) == (202, {"accepted": 1})
    assert [answer.status_code for answer in others] == [401] * 3
    assert others[0].headers["WWW-Authenticate"] == 'Secret realm="boyd"'
    assert spoilt.status_code == 400
    audit = site.get("/audit").text
    assert "intake:desk/url" in audit
    answers = "".join(answer.text for answer in (response, spoilt, *others))
    for text in (audit, answers, caplog.text):
        assert SECRET not in text
        assert quote(SECRET) not in text
        assert quote_plus(SECRET) not in text


def test_no_other_intake_takes_a_secret_in_the_url(site: Site) -> None:
    for name in ("gitlab", "plain", "json"):
        sent = site.client.post(
            f"/api/v0/agents/desk/intake/{name}", query_string={"secret": SECRET}, json={}
        )
        assert sent.status_code == 401


@pytest.fixture
def odd_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install two formats: one that cannot be imported, one without its library."""
    points = {
        "broken": EntryPoint("broken", "no_such_package:parse", formats.GROUP),
        "lazy": EntryPoint("lazy", f"{__name__}:imports_when_it_reads", formats.GROUP),
    }
    monkeypatch.setattr(formats, "_entry_points", lambda: points)


def imports_when_it_reads(_: Any) -> list[Any]:
    """A format whose library is missing."""
    import no_such_library  # type: ignore[import-not-found]

    return [no_such_library]


@pytest.mark.usefixtures("odd_formats")
@pytest.mark.parametrize(
    ("intake", "reason"),
    [
        ({"name": "own", "use": "elsewhere"}, "the format 'elsewhere' is not installed"),
        ({"name": "own", "use": "broken"}, "the format 'broken' cannot be imported"),
        ({"name": "own", "use": "lazy"}, "No module named 'no_such_library'"),
    ],
)
def test_a_message_is_kept_for_later_while_its_format_is_not_installed(
    server: Any, intake: dict[str, Any], reason: str
) -> None:
    redis = client_of(server)
    lab = Lab(Agent("desk", plugins=[Desk()], intakes=[intake]), client=redis)
    answer = Site(lab, server).post("/intake/own", {})

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")
    assert reason in answer.json["detail"]


@pytest.mark.parametrize(
    ("library", "path"),
    [
        ("jmespath", "intake/datadog"),
        ("jmespath", "agents/desk/intake/datadog"),
        ("cryptography", "agents/desk/intake/cloudwatch"),
    ],
)
def test_a_message_is_kept_for_later_while_a_library_is_not_installed(
    site: Site, monkeypatch: pytest.MonkeyPatch, library: str, path: str
) -> None:
    formats._compiled.cache_clear()
    monkeypatch.setitem(sys.modules, library, None)
    body = (DATA / "datadog" / "firing.json").read_bytes()
    answer = site.client.post(f"/api/v0/{path}", data=body, headers=site.admin)

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")
    assert f"{library}, which is not installed" in answer.json["detail"]
    assert "pip install 'boyd[intakes]'" in answer.json["detail"]


def test_a_message_is_kept_for_later_while_an_expression_cannot_be_compiled_here(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    formats._compiled.cache_clear()
    monkeypatch.setattr(extraction, "MAX_TEXT", 3)
    answer = site.post("/intake/datadog", {"alert_id": "1"})

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")
    assert "a mapping that cannot be used: it is longer than 3" in answer.json["detail"]


def test_senders_are_held_to_the_rate_of_intake_by_503(server: Any, tmp_path: Path) -> None:
    (tmp_path / "gh").write_text(SECRET)
    redis = client_of(server)
    lab = Lab(Agent("desk", plugins=[Desk()], intakes=INTAKES[:1]), client=redis)
    site = Site(lab, server, intake={"secrets": tmp_path, "rate": 0.001, "burst": 2})
    answers = [send(site).status_code for _ in range(3)]
    assert answers == [202, 202, 503]


def test_messages_of_sns_are_checked_and_come_again_while_amazon_is_away(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = (DATA / "cloudwatch" / "firing.json").read_bytes()
    path = "/api/v0/agents/desk/intake/cloudwatch"

    def post_message(outcome: str | Exception) -> int:
        def check(*_: Any) -> str:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        monkeypatch.setattr(site.services.sns, "check", check)
        return int(site.client.post(path, data=body, content_type="text/plain").status_code)

    assert post_message(SenderRefused("no")) == 401
    assert post_message(SnsUnavailable("away")) == 503
    assert waiting(site) == 0
    assert [post_message("m1"), post_message("m1")] == [202, 202]
    assert waiting(site) == 1


# CloudEvents ask before they send


def options(site: Site, **headers: str) -> Any:
    return site.client.options("/api/v0/agents/desk/intake/cloudevents", headers=headers)


def test_a_system_that_asks_may_send_events_at_the_rate_of_intake(site: Site) -> None:
    answer = options(
        site, **{"WebHook-Request-Origin": "events.example", "WebHook-Request-Rate": "120"}
    )
    assert (answer.status_code, answer.data) == (200, b"")
    assert answer.headers["WebHook-Allowed-Origin"] == "events.example"
    assert answer.headers["WebHook-Allowed-Rate"] == "120"
    assert answer.headers["Allow"] == "POST, OPTIONS"
    for rate in ("*", "1000000", "", "-1", "²"):
        headers = {"WebHook-Request-Origin": "events.example", "WebHook-Request-Rate": rate}
        assert options(site, **headers).headers["WebHook-Allowed-Rate"] == "60000"
    assert "WebHook-Allowed-Origin" not in options(site).headers


def test_only_systems_in_the_settings_get_a_yes(server: Any) -> None:
    site = Site(Lab(Agent("desk")), server, intake={"origins": ["events.example"]})
    for origin, allowed in (("events.example", True), ("evil.example", False), ("*", False)):
        answer = options(site, **{"WebHook-Request-Origin": origin})
        assert answer.status_code == 200
        assert ("WebHook-Allowed-Origin" in answer.headers) is allowed
