"""An asyncio event loop in a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One for all: clients of Redis belong to the loop that they were first used in."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def run(work: Coroutine[Any, Any, object]) -> None:
    """Run *work* to its end."""
    asyncio.run_coroutine_threadsafe(work, _loop()).result()
