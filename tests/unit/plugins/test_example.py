from __future__ import annotations

import inspect

import pytest

from boyd.plugins import example
from boyd.plugins.example import Example
from plugin_kit import Rig


def test_nothing_is_done_while_it_is_cool() -> None:
    assert Rig(Example()).think() is None


def test_heat_turns_the_fan_on() -> None:
    rig = Rig(Example(limit=25))
    rig.state.set("degrees", 26.0)
    decision = rig.think()
    assert decision is not None
    assert (decision.action, decision.params) == ("example:fan", {"speed": 80})
    assert rig.act("fan", decision.params) == "The fan runs at 80 %"
    assert rig.state.get("speed") == 80


def test_a_speed_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="less than or equal to 100"):
        Rig(Example()).act("fan", {"speed": 101})


def test_the_hook_counts_iterations() -> None:
    rig = Rig(Example())
    for _ in range(2):
        for hook in rig.host.hooks("on_loop_start"):
            hook(ctx=rig.ctx)
    assert rig.state.get("iterations") == 2


def test_it_stays_short_enough_to_be_read() -> None:
    assert len(inspect.getsource(example).splitlines()) < 80
