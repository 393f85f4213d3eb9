"""Fields that a later release has added survive where this one writes a document back."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from boyd.errors import PluginError
from boyd.models.procedure import StepProgress
from boyd.store.runs import read_callback
from boyd_goals.plugin import Goals
from boyd_goals.state import GoalSession

LATER = {"kind": "x"}
AT = datetime(2026, 1, 5, tzinfo=UTC)


def test_a_changed_step_keeps_the_fields_that_this_release_does_not_know() -> None:
    compensation = {"state": "running", "later": LATER}
    text = json.dumps({"state": "running", "compensation": compensation, "later": LATER})
    changed = json.loads(StepProgress.from_json(text).patched({"state": "done"}).to_json())

    assert (changed["state"], changed["later"]) == ("done", LATER)
    assert changed["compensation"]["later"] == LATER


def test_a_changed_session_of_goals_keeps_them_too() -> None:
    times = {"createdAt": AT.isoformat(), "updatedAt": AT.isoformat()}
    goal = {"id": "1", "description": "d", "criteria": "c", **times, "later": LATER}
    stored = {"id": "1", "goals": {"1": goal}, **times, "later": LATER}
    session = GoalSession.from_wire(stored)
    changed = session.patched({"cycle": 2}).to_wire()

    assert (changed["cycle"], changed["later"]) == (2, LATER)
    assert changed["goals"]["1"]["later"] == LATER


def test_an_unknown_field_that_was_not_stored_is_refused() -> None:
    # As in an agent file, where it is a misspelled option.
    with pytest.raises(PluginError, match="unknown fields: vetoo"):
        Goals(shadow=[{"name": "n", "triggers": ["rm"], "vetoo": False}])
    with pytest.raises(ValidationError, match="unknown fields: later"):
        StepProgress(state="running").patched({"later": 1})


def test_a_field_that_is_known_is_still_validated() -> None:
    with pytest.raises(ValidationError):
        StepProgress.from_json('{"state": "dreaming", "later": 1}')


def test_a_delivery_with_a_field_of_a_later_release_can_be_read() -> None:
    delivery = {"at": AT.isoformat(), "ok": True, "duration": 9.5, "later": LATER}
    fields = {"id": "r", "url": "http://h", "executionState": "succeeded"}
    callback = read_callback({**fields, "deliveries": json.dumps([delivery])})

    assert len(callback.deliveries) == 1
