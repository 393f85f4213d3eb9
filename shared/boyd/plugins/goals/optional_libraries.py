"""Libraries that only agents with goals need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from boyd.errors import ConfigError


@contextmanager
def extra() -> Iterator[None]:
    """What is imported here comes with the extra `goals`.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"goals need {error.name}, which is not installed: run `pip install 'boyd[goals]'`"
        ) from error
