"""The remote control of Celery, as far as workers obey it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from celery.worker import control

from boyd.messaging.celery_app import make_app
from boyd_worker.worker import only_inspect

SENTINELS = "sentinel://me:hush6@one:1,two:2/boyd/0?sentinel_password=hush7"


def test_no_reply_has_a_password_of_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control.Panel, "data", dict(control.Panel.data))
    only_inspect()
    app = make_app(SENTINELS, events=True)
    # Celery leaves out the password of the first address itself.
    broker = app.connection_for_read().info() | {"password": None}
    controller = SimpleNamespace(stats=lambda: {"broker": broker})
    state = SimpleNamespace(app=app, consumer=SimpleNamespace(controller=controller))

    replies = [control.Panel.data[name](state) for name in ("stats", "conf", "report")]

    assert "hush" not in json.dumps(replies)
