"""The number of source files that one webhook, one click and one iteration go through."""

from __future__ import annotations

import pytest

import traces


@pytest.mark.parametrize("way", traces.CEILINGS, ids=lambda way: way.__name__.lower())
def test_a_way_through_the_project_enters_few_files(way: type[traces.Way]) -> None:
    files = traces.trace(way)

    listing = "\n".join(f"{name}: {', '.join(functions)}" for name, functions in files.items())
    assert len(files) <= traces.CEILINGS[way], listing
