"""The latest published replay: what is different, by action, and the iterations."""

from __future__ import annotations

from api_kit import Site
from boyd.models import utc_now
from boyd.models.tape import (
    PUBLISHED_FINDINGS,
    Course,
    PublishedReplay,
    ReplayedIteration,
    ReplayReport,
)
from boyd.replay.differences import report
from console_kit import Browser

HERE = "/console/agents/desk/replay"
HOSTILE = "<img src=x onerror=alert(1)>"


def make_report(count: int) -> ReplayReport:
    """A report in which that many iterations are newly automatic."""
    course = Course(action=HOSTILE, target="web-1", fate="automatic", reason="the action is auto")
    idle = Course(action="no-op", fate="none")
    judgements = [
        ReplayedIteration(
            iteration=f"desk:{number}.abc",
            at=utc_now(),
            before=idle,
            after=course,
            differences=["flipped", "newly automatic"],
            ended="succeeded",
        )
        for number in range(1, count + 1)
    ]
    return report("desk", "b1", judgements, ["landlock"])


def document(count: int) -> PublishedReplay:
    return PublishedReplay.of(make_report(count), "cli:ann", utc_now())


def test_without_a_replay_the_page_says_how_to_make_one(alice: Browser, desk: Site) -> None:
    response = alice.get(HERE)

    assert "No replay of the last 30 days was published." in response.text
    assert "boyd replay --since 30d --agent changed.toml --publish" in response.text


def test_the_differences_lead_to_their_iterations(alice: Browser, desk: Site) -> None:
    desk.lab.store.latest_replay.publish(document(2))
    response = alice.get(HERE)

    assert response.title.startswith("Replay of desk: 2 newly automatic")
    assert "2 iterations replayed, 0 as recorded, 2 not." in response.text
    assert "cli:ann" in response.text
    assert 'href="/console/agents/desk/iterations/1.abc"' in response.source
    assert HOSTILE in response.text
    assert HOSTILE not in response.source


def test_a_large_report_is_published_in_part_for_a_while_and_says_so(
    alice: Browser, desk: Site
) -> None:
    desk.lab.store.latest_replay.publish(document(PUBLISHED_FINDINGS + 3))

    assert "3 more were not published" in alice.get(HERE).text
    assert 0 < desk.lab.client.ttl("boyd:{desk}:replay") <= 30 * 86_400


def test_a_replay_without_differences_says_so(alice: Browser, desk: Site) -> None:
    desk.lab.store.latest_replay.publish(document(0))

    assert "Everything would have been decided as it was." in alice.get(HERE).text


def test_a_report_of_a_later_release_is_ignored(alice: Browser, desk: Site) -> None:
    desk.lab.client.set("boyd:{desk}:replay", '{"report": 1}')

    assert "No replay" in alice.get(HERE).text
