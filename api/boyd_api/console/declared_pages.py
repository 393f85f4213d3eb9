"""Pages as their modules declare them, here and in other packages.

pages = Pages()

@pages.get("/fleet", scope="read")
def fleet(page: PageRequest) -> Response:
    \"\"\"Show the workers and their queues.\"\"\"
    return render_page(page, "fleet.html", workers=…)

A package adds pages by an entry point of the group `boyd.pages` that names its `Pages`. Its
templates and assets are in the folders `templates` and `static` of that package, and their names
begin with that of the entry point: `goals/list.html`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Literal, TypeVar

from flask import Response
from werkzeug.wrappers import Response as AnyResponse

from boyd.models import Actor, Scope
from boyd_api.http.services import Services

PageResult = Response | AnyResponse
_V = TypeVar("_V", bound=Callable[..., PageResult])


@dataclass(frozen=True)
class Page:
    """A declared page.

    Attributes:
        section: the entry of the navigation that it belongs to.
        path: below `/console`; a page of one agent has `<agent>` in it.
        scope: the scope that its reader needs; without one, it is open to all.
        fresh: it needs a recent login.
        signed: a program sends it, with a signature that the view checks, not a form.
    """

    section: str
    method: Literal["GET", "POST"]
    path: str
    view: Callable[..., PageResult]
    scope: Scope | None
    fresh: bool = False
    signed: bool = False

    @property
    def endpoint(self) -> str:
        """Its name in the blueprint."""
        module = self.view.__module__.rpartition(".")[2]
        return f"{self.section}_{module}_{self.view.__name__}"


@dataclass(frozen=True)
class NavigationLink:
    """An entry of the navigation that a package adds.

    Attributes:
        section: that of the pages that belong to it.
        path: of its first page, below that of the agent, as `/goals`, or below the console.
        of: what it is about; a page about the deployment is listed in the menu of the reader.
        needs: a setting without which it is not listed, as `slack.workspace`.
    """

    title: str
    section: str
    path: str
    of: Literal["agent", "deployment"] = "agent"
    needs: str = ""


#: Ends what a principal may still do; the actor is for the audit.
Logout = Callable[[Services, Actor], None]


class Pages:
    """The pages of one module, or of a package that adds some.

    Args:
        package: the package whose templates and assets these pages use, if not the console's.
        link: the entry of the navigation that leads to them.
        section: the one that they belong to; by default the first word of the view's module.
    """

    def __init__(
        self,
        package: str | None = None,
        link: NavigationLink | None = None,
        *,
        section: str = "",
    ) -> None:
        self.all: list[Page] = []
        self.logouts: list[Logout] = []
        self.package = package
        self.link = link
        self._section = section

    def get(self, path: str, scope: Scope | None = "read") -> Callable[[_V], _V]:
        """Declare a page that shows something, and changes nothing."""
        return self._add("GET", path, scope)

    def post(
        self, path: str, scope: Scope | None, *, fresh: bool = False, signed: bool = False
    ) -> Callable[[_V], _V]:
        """Declare the receiver of a form, or of a signed message."""
        return self._add("POST", path, scope, fresh, signed)

    def on_logout(self, end: Logout) -> Logout:
        """Declare what else ends when an identity provider has signed a person out."""
        self.logouts.append(end)
        return end

    def _add(
        self,
        method: Literal["GET", "POST"],
        path: str,
        scope: Scope | None,
        fresh: bool = False,
        signed: bool = False,
    ) -> Callable[[_V], _V]:
        def declare(view: _V) -> _V:
            module = view.__module__.rpartition(".")[2]
            section = self._section or module.partition("_")[0]
            self.all.append(Page(section, method, path, view, scope, fresh, signed))
            return view

        return declare


log = logging.getLogger(__name__)

#: The group of entry points; each names the `Pages` of a package.
GROUP = "boyd.pages"


@cache
def load_guest_pages() -> Mapping[str, Pages]:
    """The pages of installed packages, by the name of their entry point.

    A package that cannot be imported is logged and left out: the console works without it.
    """
    loaded = {point.name: _load(point) for point in sorted(entry_points(group=GROUP))}
    return {name: pages for name, pages in loaded.items() if pages is not None}


def _load(point: EntryPoint) -> Pages | None:
    try:
        pages = point.load()
    except Exception:
        log.warning(
            "the console has no pages %r: %s failed", point.name, point.value, exc_info=True
        )
        return None
    if not isinstance(pages, Pages):
        log.warning("the console has no pages %r: %s is no Pages", point.name, point.value)
        return None
    return pages
