"""A browser without a screen or scripts: it keeps cookies, follows redirects and sends forms."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from api_kit import Site

#: What a browser sends along with a form of the page that it shows.
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin", "Origin": "null"}

_FORM = re.compile(r"<form\b([^>]*)>(.*?)</form>", re.DOTALL)
_FIELD = re.compile(r"<(?:input|button|textarea)\b([^>]*)>", re.DOTALL)
_ATTRIBUTE = re.compile(r'([\w-]+)(?:="([^"]*)")?')


@dataclass(frozen=True)
class Form:
    """A form of a page: its address and its fields."""

    action: str
    fields: dict[str, str]


@dataclass(frozen=True)
class Shown:
    """A page as it was answered."""

    status: int
    path: str
    source: str
    headers: Any

    @property
    def text(self) -> str:
        """The visible text: without tags, and with spaces as they are shown."""
        body = re.sub(r"(?s)<head>.*?</head>|<svg\b.*?</svg>", " ", self.source)
        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())

    @property
    def title(self) -> str:
        """The title of its tab."""
        return html.unescape(re.search(r"<title>(.*?)</title>", self.source, re.DOTALL)[1]).strip()  # type: ignore[index]

    def form(self, action: str) -> Form:
        """The form whose address ends with *action*."""
        for attributes, inner in _FORM.findall(self.source):
            target = html.unescape(dict(_ATTRIBUTE.findall(attributes)).get("action", self.path))
            if target.endswith(action):
                fields = [dict(_ATTRIBUTE.findall(field)) for field in _FIELD.findall(inner)]
                hidden = [field for field in fields if field.get("type") == "hidden"]
                values = {field["name"]: html.unescape(field["value"]) for field in hidden}
                return Form(target, values)
        raise AssertionError(f"{self.path} has no form to {action}")


class Browser:
    """A browser of one person."""

    def __init__(self, site: Site, key: dict[str, str] | None = None) -> None:
        """Open it; with the headers of a *key*, signed in."""
        self.site = site
        self.client = site.app.test_client()
        if key is not None:
            self.sign_in(key["Authorization"].removeprefix("Bearer "))

    def sign_in(self, key: str) -> Shown:
        """Sign in with the text of a key."""
        return self.send(self.get("/console/login").form("/login"), key=key)

    def get(self, path: str, **headers: str) -> Shown:
        """Open a page, and follow where it leads."""
        return self._page(self.client.get(path, headers=headers, follow_redirects=True))

    def send(self, form: Form, follow: bool = True, **fields: Any) -> Shown:
        """Send a form with further fields."""
        return self.post(form.action, {**form.fields, **fields}, follow)

    def post(self, path: str, fields: dict[str, Any], follow: bool = True, **headers: str) -> Shown:
        """Send fields, as a page of the console would."""
        sent = {**SAME_ORIGIN, **{name.replace("_", "-"): value for name, value in headers.items()}}
        answer = self.client.post(path, data=fields, headers=sent, follow_redirects=follow)
        return self._page(answer)

    def _page(self, answer: Any) -> Shown:
        parts = urlsplit(answer.request.full_path.rstrip("?"))
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        return Shown(answer.status_code, path, answer.get_data(as_text=True), answer.headers)
