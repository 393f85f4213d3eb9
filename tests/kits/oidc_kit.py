"""An OpenID provider for tests: oidc-provider of npm, in a process of its own, and its people."""

from __future__ import annotations

import html
import re
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urljoin, urlsplit

import requests

from npm_kit import OIDC

_HERE = Path(__file__).parents[1] / "data" / "oidc"
CLIENT = "boyd"
SECRET = "secret-of-boyd-0123456789"
AUDIENCE = "boyd-api"
_FORM = re.compile(r'<form[^>]*action="([^"]+)"[^>]*>(.*?)</form>', re.DOTALL)
_HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)"')


class Provider:
    """A running provider."""

    def __init__(self, port: int, boyd: str) -> None:
        self.issuer = f"http://127.0.0.1:{port}"
        self._command = ["node", str(_HERE / "provider.mjs"), str(port), boyd]

    def __enter__(self) -> Self:
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            self._command, cwd=OIDC.folder, stdout=subprocess.PIPE, stderr=quiet, text=True
        )
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line.startswith("ready"), line or "the provider did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def tell(self, route: str, **more: Any) -> str:
        """Change its state, or have it sign something; see `provider.mjs`."""
        answer = requests.post(f"{self.issuer}/test/{route}", json=more, timeout=60)
        return answer.text

    def token(self, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """An access token as it might issue it, with other claims; None leaves one out."""
        now = int(time.time())
        usual = {"iss": self.issuer, "aud": AUDIENCE, "sub": "ann", "groups": ["oncall"]}
        token_claims = {**usual, "iat": now, "exp": now + 600, "client_id": "other", **claims}
        token_claims = {name: value for name, value in token_claims.items() if value is not None}
        return self.tell("sign", claims=token_claims, header={"typ": "at+jwt", **(header or {})})

    def program_token(self, audience: str = AUDIENCE) -> str:
        """The token of a program, which the token endpoint gives it."""
        answer = requests.post(
            f"{self.issuer}/token",
            data={"grant_type": "client_credentials", "resource": f"urn:api:{audience}"},
            auth=(CLIENT, SECRET),
            timeout=60,
        )
        return str(answer.json()["access_token"])

    def settings(self, **more: Any) -> dict[str, Any]:
        """The settings of an API that knows it."""
        return {
            "issuer": self.issuer,
            "client_id": CLIENT,
            "client_secret": SECRET,
            "name": "Test ID",
            "audience": AUDIENCE,
            "allow_private": True,
            "timeout": 30.0,
            "groups": {
                "oncall": ["read", "approvals"],
                "leads": ["admin"],
                "robots": ["read"],
            },
            **more,
        }


@dataclass
class WebBrowser:
    """An HTTP client that keeps cookies, follows redirects and fills in the provider's forms."""

    boyd: str
    session: requests.Session = field(default_factory=requests.Session)

    def get(self, path: str, **more: Any) -> requests.Response:
        """Open a page, and follow where it leads."""
        return self.session.get(urljoin(self.boyd, path), timeout=60, **more)

    def post(self, path: str, page: requests.Response, **fields: str) -> requests.Response:
        """Send a form of the console, with the hidden fields of *page*."""
        sent = {**dict(_HIDDEN.findall(page.text)), **fields}
        headers = {"Sec-Fetch-Site": "same-origin"}
        url = urljoin(self.boyd, path)
        return self.session.post(url, data=sent, headers=headers, timeout=60)

    def begin(self, path: str = "/console/") -> requests.Response:
        """Press the button on the login page; the provider's page."""
        login = self.get(path)
        match = re.search(r'href="([^"]+/console/oidc/login[^"]*)"', login.text)
        assert match, login.text
        return self.get(html.unescape(match[1]))

    def sign_in(self, name: str, path: str = "/console/") -> requests.Response:
        """Sign in at the provider; the page where the browser ends up."""
        return self.answer(self.begin(path), login=name, password="x")

    def answer(self, page: requests.Response, **fields: str) -> requests.Response:
        """Send the form of the provider's page."""
        action, inner = _FORM.findall(page.text)[0]
        sent = {**dict(re.findall(r'name="(\w+)" value="([^"]*)"', inner)), **fields}
        return self.session.post(urljoin(page.url, html.unescape(action)), data=sent, timeout=60)


def path_of(answer: requests.Response) -> str:
    """The path of the page where a browser ended up."""
    return urlsplit(answer.url).path
