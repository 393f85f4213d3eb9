"""`/loop/history`: past iterations, newest first, page by page."""

from __future__ import annotations

import pytest

from api_kit import Site


def pages(site: Site, limit: int) -> list[list[int]]:
    """The numbers of the iterations on each page."""
    pages_read, cursor = [], ""
    while cursor is not None:
        query = {"limit": limit, **({"cursor": cursor} if cursor else {})}
        page = site.get("/loop/history", query_string=query).json
        pages_read.append([iteration["iteration"] for iteration in page["iterations"]])
        cursor = page.get("nextCursor")
    return pages_read


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(2, [[5, 4], [3, 2], [1]]), (5, [[5, 4, 3, 2, 1]]), (4, [[5, 4, 3, 2], [1]])],
)
def test_pages_go_on_until_the_first_iteration(
    site: Site, limit: int, expected: list[list[int]]
) -> None:
    for _ in range(5):
        site.lab.run()

    assert pages(site, limit) == expected


def test_the_iteration_in_flight_is_not_shown_and_hides_no_page(site: Site) -> None:
    for _ in range(4):
        site.lab.run()
    site.dispatcher.held = True
    site.post("/loop/trigger", {"async": True})

    assert pages(site, 2) == [[4, 3], [2, 1]]


def test_a_page_goes_on_although_newer_ones_have_come(site: Site) -> None:
    for _ in range(3):
        site.lab.run()
    cursor = site.get("/loop/history?limit=1").json["nextCursor"]
    site.lab.run()
    page = site.get(f"/loop/history?cursor={cursor}").json

    assert [iteration["iteration"] for iteration in page["iterations"]] == [2, 1]


def test_before_the_first_iteration_there_is_nothing(site: Site) -> None:
    assert site.get("/loop/history").json == {"iterations": []}
    assert site.get("/loop/history?cursor=1").json == {"iterations": []}
    assert site.get("/loop/history?cursor=999999999999999").json == {"iterations": []}


@pytest.mark.parametrize("cursor", ["", "0", "-1", "x", "1.5", "1%0a", "%D9%A3", "9" * 17])
def test_a_cursor_that_was_not_given_out_is_refused(site: Site, cursor: str) -> None:
    answer = site.get(f"/loop/history?cursor={cursor}")

    assert answer.status_code == 422
    assert answer.json["errors"][0]["parameter"] == "cursor"
