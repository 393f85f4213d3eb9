"""`python tests/traces.py`: the source files that a webhook, a click and an iteration go through.

A file counts if one of its functions runs. Imports do not count, nor does the lab, which stands for
broker and workers. The second of its kind is traced: the first one opens connections. What the API
remembers for a second or more is forgotten, so that the number does not depend on time.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Protocol
from unittest import mock

import fakeredis

from api_kit import Site, make_desk, make_lab
from boyd.phases import time_limit
from boyd.store import fleet
from boyd.testing import Lab
from console_kit import Browser

ROOT = Path(__file__).parents[1]
SOURCES = tuple(f"{ROOT / folder}/" for folder in ("shared", "worker", "api"))
LAB = f"{ROOT}/shared/boyd/testing/"


class Way(Protocol):
    """A way through the project, which can be taken again and again."""

    def prepare(self) -> None:
        """Do what comes before, and is not traced."""

    def run(self) -> None:
        """Take it."""

    def check(self) -> None:
        """Assert that it led to its end."""


class Webhook:
    """Alertmanager posts an alert, which wakes the agent."""

    def __init__(self) -> None:
        server: Any = fakeredis.FakeServer()
        self.site = Site(make_desk(server, "event-driven")[0], server)
        self.site.dispatcher.held = True
        self.sent = 0
        self.answer: Any = None

    def prepare(self) -> None:
        """End the iteration before."""
        self.site.lab.deliver()
        self.site.services.forget_agents()
        self.sent += 1

    def run(self) -> None:
        """Post a new alert."""
        alert = {
            "status": "firing",
            "labels": {"alertname": "Down", "instance": f"host{self.sent}"},
            "annotations": {},
            "startsAt": "2026-01-05T12:00:00Z",
            "fingerprint": f"host{self.sent}",
        }
        body = {"version": "4", "status": "firing", "receiver": "boyd", "alerts": [alert]}
        self.answer = self.site.post("/intake/alertmanager", json=body)

    def check(self) -> None:
        """The alert was accepted, and an iteration has begun."""
        assert self.answer.status_code == 202, self.answer.text
        assert self.site.lab.dispatcher.hints


class Click:
    """Somebody approves an action on its page: POST, execution, redirect and GET."""

    def __init__(self) -> None:
        server: Any = fakeredis.FakeServer()
        lab, self.desk = make_desk(server)
        self.site = Site(lab, server)
        self.browser = Browser(self.site, self.site.key("admin", person=True))
        self.form: Any = None
        self.shown: Any = None

    def prepare(self) -> None:
        """Open the page of a new approval."""
        self.desk.done.clear()
        page = f"/console/agents/desk/approvals/{self.site.waiting('hello')}?answer=approve"
        self.form = self.browser.get(page).form("/answer")
        self.site.services.forget_agents()
        self.site.services._people = (float("-inf"), {})

    def run(self) -> None:
        """Send the form, and follow where it leads."""
        self.shown = self.browser.send(self.form)

    def check(self) -> None:
        """The action ran, and its page is shown."""
        assert self.shown.status == 200, self.shown.text
        assert self.desk.done == ["publish hello"]


class Iteration:
    """An agent observes, orients, decides, acts and completes."""

    def __init__(self) -> None:
        self.lab = make_lab(fakeredis.FakeServer())
        self.number = 0

    def prepare(self) -> None:
        """Nothing comes before."""

    def run(self) -> None:
        """Run one."""
        self.number = self.lab.launcher.trigger("test").iteration
        self.lab.deliver()

    def check(self) -> None:
        """It has executed its action."""
        result = self.lab.store.history.get(self.number)
        assert result is not None
        assert [action_result.success for action_result in result.action_results] == [True]


#: The most files that each may go through: ceilings, which may only fall.
CEILINGS: Mapping[type[Way], int] = {Webhook: 23, Click: 60, Iteration: 40}


def trace(kind: type[Way]) -> dict[str, list[str]]:
    """The files that it goes through, with the functions that run in each."""
    way = kind()
    way.prepare()
    way.run()
    way.prepare()
    with (
        mock.patch.object(fleet, "_CACHE", 3600),  # however slow this is, nobody reads it again
        mock.patch.object(time_limit, "_spare", deque()),  # threads that were there are not seen
    ):
        entered = _trace(way.run)
    way.check()
    return {
        name.removeprefix(f"{ROOT}/"): sorted(functions)
        for name, functions in sorted(entered.items())
        if name.startswith(SOURCES) and not name.startswith(LAB)
    }


def _trace(run: Callable[[], None]) -> Mapping[str, set[str]]:
    """The functions that run, by file, but for heartbeats: a worker sends them by the way."""
    entered: dict[str, set[str]] = defaultdict(set)
    beating = False

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal beating
        if frame.f_code is Lab._beat.__code__:
            beating = event != "return"
        elif event == "call" and not beating and frame.f_code.co_name != "<module>":
            entered[frame.f_code.co_filename].add(frame.f_code.co_qualname)

    gc.disable()  # else the end of what was traced before is seen, too
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        gc.enable()
    return entered


def main() -> None:
    """Print the files, and with -v the functions, of each."""
    for kind, ceiling in CEILINGS.items():
        files = trace(kind)
        print(f"{kind.__name__}: {len(files)} files, at most {ceiling}")
        for name, functions in files.items():
            print(f"  {name}", ", ".join(functions) if "-v" in sys.argv else "")


if __name__ == "__main__":
    main()
