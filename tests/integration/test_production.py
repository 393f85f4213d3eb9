"""The set-up of docs/deployment.md: every route, command and page works in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from boyd.settings.process_settings import load_settings
from boyd_api.app import ALL, create_app
from boyd_api.console.rendering import asset
from boyd_api.http.services import Services
from command_kit import COMMANDS, PROCESS, Things, commands
from oidc_kit import WebBrowser, path_of
from production_kit import HOST, Site, production, tls_proxy
from route_kit import LAST, Known, ask_everything


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, redis_server: str) -> Iterator[Site]:
    """The deployment; `redis_server` is asked for to skip where there is none."""
    with production(tmp_path_factory.mktemp("production")) as running_site:
        running_site.ask("POST", "/api/v0/agents/routed/loop/trigger", {})
        running_site.running.wait_for_archive()
        yield running_site


@pytest.fixture
def names_in_use(site: Site) -> Known:
    """Things that routes, commands and pages can name."""
    return Known(site.ask, site.running)


def refusals(site: Site) -> list[str]:
    """The commands that Redis has refused since the last call."""
    lines = site.running.guarded.refusals()
    site.running.guarded.admin.acl_log_reset()
    return lines


# The API


@pytest.mark.real
@pytest.mark.long
def test_every_route_answers_through_the_proxy(site: Site, names_in_use: Known) -> None:
    failed = list(ask_everything(site.ask, names_in_use))
    agent = site.leave()
    paths = {route.name: route.path for route in ALL}
    for name in LAST:
        site.ask("POST", f"/api/v0/agents/{agent}{paths[name]}", {})

    assert (failed, refusals(site)) == ([], [])


# The command line


@pytest.fixture
def things(site: Site, tmp_path: Path) -> Things:
    """The objects that commands can name."""
    return Things(site, tmp_path)


def test_every_command_has_a_call_here() -> None:
    assert set(commands()) == COMMANDS.keys()


@pytest.mark.real
@pytest.mark.long
def test_every_process_runs_in_the_deployment(site: Site) -> None:
    processes = {name for name, lines in COMMANDS.items() if lines == PROCESS}

    # These start a deployment of their own.
    assert processes - {"demo", "up"} == site.running.started


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize("command", [name for name in COMMANDS if COMMANDS[name] != PROCESS])
def test_a_command_does_its_work(things: Things, site: Site, command: str) -> None:
    for line in COMMANDS[command].split("\n"):
        done = things.call(command, line.format(known=things, folder=things.folder))
        assert done.status == 0, (line, done)

    assert refusals(site) == []


@pytest.mark.real
@pytest.mark.long
def test_a_look_up_of_what_never_was_leaves_the_archive_in_use(things: Things) -> None:
    unknown = things.call("history", "99999")
    past = things.call("history", "--since yesterday")

    assert (unknown.status, "99999" in unknown.errors) == (4, True), unknown
    assert (past.status, past.errors) == (0, ""), past


# The console

#: Where the pages with a name in their path lie.
PAGES = {
    "/console/open/<token>": "{known.sign_in_link}",
    "/console/answer/<token>": "/console/answer/{known.answer_token}",
    "/console/agents/<agent>": "/console/agents/routed",
    "/console/agents/<agent>/approvals/<id>": "/console/agents/routed/approvals/{known.approval}",
    "/console/agents/<agent>/history": "/console/agents/routed/history?since=yesterday",
    "/console/agents/<agent>/iterations/<name>": "/console/agents/routed/iterations/1",
    "/console/agents/<agent>/iterations/<name>/record.json": (
        "/console/agents/routed/iterations/1/record.json"
    ),
    "/console/agents/<agent>/replay": "/console/agents/hosts/replay",
    "/console/agents/<agent>/audit": "/console/agents/routed/audit",
    "/console/agents/<agent>/audit/export": "/console/agents/routed/audit/export",
    "/console/agents/<agent>/runs": "/console/agents/routed/runs",
    "/console/agents/<agent>/runs/new": "/console/agents/routed/runs/new",
    "/console/agents/<agent>/runs/<id>": "/console/agents/routed/runs/{known.run}",
    "/console/agents/<agent>/investigations": "/console/agents/routed/investigations",
    "/console/agents/<agent>/investigations/<id>": (
        "/console/agents/routed/investigations/{known.investigation}"
    ),
    "/console/agents/<agent>/investigations/<id>/calls/<int:number>": (
        "/console/agents/routed/investigations/{known.investigation}/calls/1"
    ),
    "/console/agents/<agent>/proof": "/console/agents/routed/proof",
    "/console/slack/link/<token>": "/console/slack/link/{known.slack_token}",
    "/console/agents/<agent>/goals": "/console/agents/control/goals",
    "/console/agents/<agent>/goals/<id>": "/console/agents/control/goals/{known.goal}",
    "/console/static/<digest>/<path:name>": asset("console.css"),
    "/console/<path:rest>": "/console/nothing",
}
#: Pages that answer with another status here, and the reason in it.
OTHERWISE = {
    "/console/incident": (422, "target"),
    "/console/incident/report": (422, "target"),
    "/console/oidc/login": (404, "identity provider"),
    "/console/oidc/callback": (404, "identity provider"),
    "/console/agents/<agent>/investigations/<id>/calls/<int:number>": (404, "no call"),
    "/console/<path:rest>": (404, "has no page"),
}


def pages() -> list[str]:
    """The rules of all pages."""
    settings = load_settings({})
    rules = create_app(settings, Services(settings)).url_map.iter_rules()
    return [
        rule.rule
        for rule in rules
        if rule.rule.startswith("/console") and "GET" in (rule.methods or ())
    ]


@pytest.fixture
def browser(site: Site, things: Things) -> Iterator[WebBrowser]:
    """A browser that comes by the public name, and has signed in with a link."""
    with requests.Session() as session:
        # Else the authorities that the environment names come first.
        session.trust_env = False
        session.verify = site.proxy.trust
        session.headers["Host"] = HOST
        visitor = WebBrowser(site.proxy.url, session)
        link = things.sign_in_link
        page = visitor.post(link, visitor.get(link))
        assert (page.status_code, path_of(page)) == (200, "/console/"), page.text
        yield visitor


def test_every_page_has_an_address_here() -> None:
    assert {rule for rule in pages() if "<" in rule} == PAGES.keys()
    assert OTHERWISE.keys() <= set(pages())


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize("rule", pages())
def test_a_page_is_shown_through_the_proxy(
    site: Site, browser: WebBrowser, things: Things, rule: str
) -> None:
    status, words = OTHERWISE.get(rule, (200, ""))
    address = PAGES.get(rule, rule).format(known=things)
    with browser.get(address, stream=True) as response:
        if response.headers["Content-Type"].startswith("text/event-stream"):
            assert next(response.iter_content(1))
        else:
            assert (response.status_code, words in response.text) == (status, True), response.text
            assert "internal error" not in response.text.lower()
    assert refusals(site) == []


@pytest.mark.real
@pytest.mark.long
def test_cookies_of_the_console_are_kept_for_https_and_this_host(browser: WebBrowser) -> None:
    cookies = [(cookie.name, cookie.secure) for cookie in browser.session.cookies]

    assert cookies
    assert all(secure and name.startswith("__Host-boyd") for name, secure in cookies), cookies


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize("removed", ["/", ""], ids=["removed", "kept"])
def test_a_proxy_that_serves_boyd_below_a_path_gets_an_error_that_says_so(
    site: Site, removed: str
) -> None:
    location = (
        "location /boyd/ {\n"
        f"    proxy_pass {site.api_url}{removed};\n"
        "    proxy_set_header X-Forwarded-Prefix /boyd;\n"
        "}\n"
        f"location = /healthz {{ proxy_pass {site.api_url}; }}\n"
    )
    with tls_proxy(location) as proxy:
        answer = requests.get(f"{proxy.url}/boyd/console/", verify=proxy.trust, timeout=60)

    assert answer.status_code == 400
    assert "below /boyd, but it needs a host name of its own" in answer.text
