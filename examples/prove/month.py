"""Makes up five weeks of a load: month.csv has it each five minutes, incidents.csv the labels.

The load has a day and a week, noise, peaks that nobody minds, and incidents, in which it is high.
The same each time.
"""

from __future__ import annotations

import csv
import math
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

START = datetime(2026, 10, 1, tzinfo=UTC)
EVERY = timedelta(minutes=5)
DAYS = 35


def main() -> None:
    """Write both files here."""
    dice = random.Random(7)
    incidents = sorted(
        START + timedelta(days=dice.uniform(0, DAYS), minutes=dice.uniform(0, 60))
        for _ in range(3 * DAYS // 5)
    )
    spans = [(start, start + timedelta(minutes=dice.uniform(15, 90))) for start in incidents]
    peaks = {dice.randrange(DAYS * 288) for _ in range(40)}
    with Path("incidents.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["start", "end"])
        rows.writerows(
            [start.isoformat("T", "seconds"), end.isoformat("T", "seconds")] for start, end in spans
        )
    with Path("month.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["timestamp", "source", "load"])
        for number in range(DAYS * 288):
            at = START + number * EVERY
            hour = at.hour + at.minute / 60
            load = 45 + 15 * math.sin((hour - 9) * math.pi / 12) + dice.gauss(0, 4)
            load += 25 if number in peaks else 0
            if any(start <= at <= end for start, end in spans):
                load += dice.gauss(38, 6)
            rows.writerow([at.isoformat(), "load/queue", f"{min(100.0, max(0.0, load)):.1f}"])


if __name__ == "__main__":
    main()
