"""Fetches the orders from the outbox of the shop, and delivers them.

    python courier.py --outbox /tmp/outbox --lock /tmp/courier.lock

There is one courier at a time: the one that holds the lock file, which names its process. A courier
that is killed leaves the lock behind, and the next one waits for ever: that is the fault of this
example. What happens is printed. When nobody has touched the file `--watched` for a minute, the
courier ends by itself.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from datetime import datetime
from pathlib import Path

#: Seconds between two looks, two lines that say the same, and without anybody who watches.
EVERY = 0.5
REPEAT = 5.0
IDLE = 60.0


class Courier:
    """One courier.

    Args:
        outbox: where it fetches orders.
        lock: the file of who is at work.
        watched: the file that is touched as long as somebody watches.
    """

    def __init__(self, outbox: Path, lock: Path, watched: Path | None) -> None:
        self._outbox = outbox
        self._lock = lock
        self._watched = watched
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Let it come to an end."""
        self._stopped.set()

    def work(self) -> None:
        """Deliver until stopped or forgotten."""
        if not self._has_begun():
            return
        log(f"holds {self._lock}")
        try:
            while self._goes_on():
                self._deliver()
        finally:
            self._lock.unlink(missing_ok=True)

    def _has_begun(self) -> bool:
        told_at = float("-inf")
        while not self._take_lock():
            if time.monotonic() - told_at >= REPEAT:
                log(f"waits for {self._lock}, which process {self._holder()} holds")
                told_at = time.monotonic()
            if not self._goes_on():
                return False
        return True

    def _take_lock(self) -> bool:
        # A link is made with its content, or not at all.
        own = self._lock.with_name(f"{self._lock.name}.{os.getpid()}")
        own.write_text(f"{os.getpid()}\n")
        try:
            self._lock.hardlink_to(own)
        except FileExistsError:
            return False
        finally:
            own.unlink()
        return True

    def _holder(self) -> str:
        try:
            return self._lock.read_text().strip()
        except FileNotFoundError:
            return "(gone)"

    def _deliver(self) -> None:
        orders = sorted(self._outbox.glob("order-*.json"))
        for order in orders:
            order.unlink()
        if orders:
            log(f"orders delivered: {len(orders)}")

    def _goes_on(self) -> bool:
        return not self._stopped.wait(EVERY) and is_watched(self._watched)


def log(text: str) -> None:
    """Print a line with the time."""
    print(f"{datetime.now():%Y-%m-%d %H:%M:%S} {text}", flush=True)


def is_watched(file: Path | None) -> bool:
    """True if *file* was touched recently."""
    try:
        return file is None or time.time() - file.stat().st_mtime < IDLE
    except FileNotFoundError:
        return False


def main() -> None:
    """Deliver until stopped or forgotten."""
    parser = argparse.ArgumentParser(description="The courier of a small shop.")
    parser.add_argument("--outbox", type=Path, required=True)
    parser.add_argument("--lock", type=Path, required=True)
    parser.add_argument("--watched", type=Path)
    given = parser.parse_args()
    given.outbox.mkdir(parents=True, exist_ok=True)
    courier = Courier(given.outbox, given.lock, given.watched)
    signal.signal(signal.SIGTERM, lambda *_: courier.stop())
    signal.signal(signal.SIGINT, lambda *_: courier.stop())
    courier.work()


if __name__ == "__main__":
    main()
