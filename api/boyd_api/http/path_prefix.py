"""Refuses to be served below a path, which links, cookies and redirects do not know about."""

from __future__ import annotations

import re

from flask import request

from boyd_api.http.problems import HttpProblem

#: Set by proxies that remove a path before they pass a request on.
_HEADER = "X-Forwarded-Prefix"
#: A path of ours behind another one, which a proxy has not removed.
_BELOW = re.compile(r"(?!/(?:api|console|docs)/)(/.+?)/(?:console|api/v0|docs|mcp)(?:/.*)?")


def check_prefix() -> None:
    """Raise `HttpProblem` if a proxy serves Boyd below a path."""
    prefix = request.headers.get(_HEADER, "").strip().rstrip("/")
    found = _BELOW.fullmatch(request.path) if request.url_rule is None else None
    if prefix:
        raise HttpProblem("bad-request", _refusal(prefix))
    if found:
        raise HttpProblem("not-found", _refusal(found[1]))


def _refusal(prefix: str) -> str:
    return (
        f"a proxy serves Boyd below {prefix}, but it needs a host name of its own:"
        " let the proxy pass on / of that name, unchanged"
    )
