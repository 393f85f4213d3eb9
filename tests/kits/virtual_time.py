"""The clock of a Redis in this process, which tests set."""

from __future__ import annotations

from types import SimpleNamespace

import fakeredis
import pytest
from fakeredis import _helpers
from fakeredis.commands_mixins import server_mixin
from fakeredis.model import _stream

from boyd.testing import lab

#: The time at which it begins, in ms since the epoch.
BEGIN = 1_800_000_000_000


class VirtualTime:
    """The clock of Redis; `now` is in ms since the epoch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = BEGIN
        monkeypatch.setattr(lab, "fakeredis", fakeredis)
        for module in (server_mixin, _helpers, _stream):
            monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: self.now / 1000))


def imaginary_server() -> pytest.MarkDecorator:
    """Has the `server` of a test keep that time, as no real one would."""
    return pytest.mark.parametrize("server", [fakeredis.FakeServer()], ids=["imaginary"])
