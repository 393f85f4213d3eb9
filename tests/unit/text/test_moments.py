"""Moments as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from boyd.text.formatting import parse_moment

NOW = datetime(2026, 3, 1, 0, 30, tzinfo=UTC)
EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", datetime(2026, 3, 1, 0, 28, 30, tzinfo=UTC)),
        ("2h", datetime(2026, 2, 28, 22, 30, tzinfo=UTC)),
        ("1w", datetime(2026, 2, 22, 0, 30, tzinfo=UTC)),
        ("today", datetime(2026, 3, 1, tzinfo=UTC)),
        ("yesterday", datetime(2026, 2, 28, tzinfo=UTC)),
        ("2026-01-05", datetime(2026, 1, 5, tzinfo=UTC)),
        ("2026-01-05 12:00", datetime(2026, 1, 5, 12, tzinfo=UTC)),
        ("2026-01-05T12:00+02:00", datetime(2026, 1, 5, 10, tzinfo=UTC)),
    ],
)
def test_a_moment_is_an_age_a_day_or_a_date(text: str, moment: datetime) -> None:
    assert parse_moment(text, NOW, UTC) == moment


def test_days_begin_at_midnight_of_the_zone() -> None:
    late = datetime(2026, 2, 28, 23, tzinfo=UTC)

    assert parse_moment("today", late, EAST) == datetime(2026, 2, 28, 22, tzinfo=UTC)
    assert parse_moment("today", late).astimezone().hour == 0


@pytest.mark.parametrize("text", ["", "0h", "2 hours", "soon", "2026-13-01", "9999999d", "999999w"])
def test_anything_else_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time: write 2h, today, yesterday"):
        parse_moment(text, NOW, UTC)
