"""Finds the pages that other packages add to the console, by entry points."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from boyd_api.console.declared_pages import Pages

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
