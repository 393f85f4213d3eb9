"""Goals: an agent that works towards goals and remembers what it learns.

The algorithms are plain functions over the models in `boyd_goals.state`. The state is one
document per session and a graph of facts, both in Redis through `ctx.state` and `ctx.graph`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from boyd.errors import ConfigError


@contextmanager
def require_extra() -> Iterator[None]:
    """Turn the failed import of an optional library into an error that tells what to install."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"goals need {error.name}, which is not installed: run `pip install 'boyd[goals]'`"
        ) from error
