"""Real browsers at a real console: what they show, and what they must never do."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from boyd.models import Actor, ApprovalItem, ApprovalPolicy, Decision, JsonObject, Level, Proposal
from boyd.security.links import LinkSigner
from boyd.store import Retention
from harness import SECRET, Deployment

#: The sizes that every page is tried in.
DESK, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
#: Milliseconds for anything to appear on a busy machine.
PATIENCE = 120_000
#: A browser that asks nobody but the console for anything.
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)
#: How the errors begin that a page may report.
_NO_FAULTS = ("Failed to load resource", "htmx: htmx:error: Failed to fetch")
#: Reports each violation of the content security policy as an error of the page.
_REPORT = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error("CSP", event.violatedDirective, event.blockedURI, event.sourceFile));
"""


def browser_program() -> str | None:
    """The browser of this machine, if it has one."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@dataclass
class Watched:
    """The faults of the pages of one browser: errors, policy violations, requests elsewhere."""

    origin: str
    faults: list[str] = field(default_factory=list)

    def watch(self, context: Any) -> None:
        """Watch all pages of a context."""
        context.add_init_script(_REPORT)
        context.on("page", self._follow)
        context.on("request", self._check)

    def _follow(self, page: Any) -> None:
        page.on("pageerror", lambda error: self.faults.append(f"{page.url}: {error}"))
        page.on("console", self._hear)

    def _hear(self, message: Any) -> None:
        # An error status, such as that of a late answer, is no fault; neither is a dead server.
        if message.type == "error" and not message.text.startswith(_NO_FAULTS):
            self.faults.append(message.text)

    def _check(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws") and parts.netloc != self.origin:
            self.faults.append(f"asked {request.url}")


class Console:
    """A console over a real deployment, and browsers at it."""

    def __init__(self, deployment: Deployment, playwright_browser: Any) -> None:
        self.deployment = deployment
        self.browser = playwright_browser
        self.url = deployment.api("api")

    def link(self, principal: str = "alice", *scopes: Any, **more: Any) -> str:
        """A link that signs in *principal*, by default with all scopes."""
        headers = self.deployment.key(principal, *(scopes or ("admin",)), **more)
        answer = requests.post(f"{self.url}/api/v0/login-links", headers=headers, timeout=60)
        return f"{self.url}{answer.json()['path']}"

    @contextmanager
    def person(
        self, principal: str = "alice", *scopes: Any, size: Any = DESK, **options: Any
    ) -> Iterator[Any]:
        """The context of a person who is signed in; none of its pages may be at fault."""
        with self.visitor(size=size, **options) as context:
            page = context.new_page()
            page.goto(self.link(principal, *scopes))
            if not options.get("java_script_enabled", True):
                page.get_by_role("button").click()
            page.wait_for_url("**/console/")
            yield context

    @contextmanager
    def visitor(self, size: Any = DESK, **options: Any) -> Iterator[Any]:
        """The context of somebody who is not signed in."""
        context = self.browser.new_context(viewport=size, **options)
        context.set_default_timeout(PATIENCE)
        watched = Watched(urlsplit(self.url).netloc)
        watched.watch(context)
        try:
            yield context
        finally:
            _settle(context)
            context.close()
        assert watched.faults == []

    def revive_api(self, fault: int) -> None:
        """Let the API answer again after that signal."""
        if fault == signal.SIGSTOP:
            self.deployment.kill("api", signal.SIGCONT)
        else:
            port = self.url.rpartition(":")[2]
            self.deployment.start("api", "api", "--port", port, ready=False)

    def waiting(
        self, text: str = "news", *, risk: Level = "medium", ttl: float = 3600, **policy: Any
    ) -> str:
        """The id of a new pending approval of the agent `desk`."""
        params: JsonObject = {"text": text}
        decision = Decision(action="desk:write", params=params, rationale="test", confidence=1.0)
        proposal = Proposal(
            decision=decision,
            action_id="desk:write",
            params=params,
            loop_iteration=0,
            risk=risk,
            required=ApprovalPolicy(**policy),
        )
        return self.deployment.agent("desk").approvals.enqueue(proposal, Retention(ttl=ttl))

    def item(self, id: str) -> ApprovalItem:
        """An approval as it is now."""
        approval = self.deployment.agent("desk").approvals.get(id)
        assert approval is not None
        return approval

    def signed_link(self, id: str) -> str:
        """The address at which Jane answers an approval without a login."""
        signer, jane = LinkSigner(SECRET), Actor(principal="mail:jane@example.com")
        token = signer.sign(self.item(id), jane, self.deployment.store.clock.now())
        return f"{self.url}/console/answer/{token}"

    def page_of(self, id: str) -> str:
        """The address of an approval's page."""
        return f"{self.url}/console/agents/desk/approvals/{id}"


def open_again(page: Any, url: str) -> None:
    """Open a page after a failed request, the end of which may overtake the first attempt."""
    _open_unless_overtaken(page, url)
    page.goto(url)


def _settle(context: Any) -> None:
    """Let each page end the navigation it may be in: Chromium can ignore a close meanwhile.

    Playwright then waits for the end of the page without limit (its issue 42366).
    """
    for page in context.pages:
        _open_unless_overtaken(page, "about:blank")


def _open_unless_overtaken(page: Any, url: str) -> None:
    """Open a page, unless another navigation overtakes that; it has ended then, too."""
    from playwright.sync_api import Error

    with suppress(Error):
        page.goto(url)


def keep_screenshot(page: Any, folder: Path, name: str) -> None:
    """Keep a picture of the whole page, for people to look at."""
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{name}.png", full_page=True)
