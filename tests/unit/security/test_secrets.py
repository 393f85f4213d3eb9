"""Secrets of plugins: none gets into Redis by the text of an error, or as a parameter."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr

from boyd import Agent, Plugin, Veto, action, observer, orienter
from boyd.errors import PluginError
from boyd.models import ActionResult, Decision
from boyd.plugin import strategy, tool
from boyd.testing import Lab
from boyd.text.redaction import redactor
from kit import everything

URL, ASSIGNED, OPTION = "hunter2abc", "tr0ub4dor3", "0ption-of-a-plugin"
SAID = f"postgres://u:{URL}@db/x refused password={ASSIGNED}, asked {OPTION}"


class Leaky(Plugin):
    """Fails everywhere, and says why."""

    id = "leaky"

    class Options(Plugin.Options):
        """Options of the plugin."""

        inner: dict[str, list[SecretStr]] = Field(default_factory=dict)
        veto: bool = False
        choose: str = "leaky:do"

    @observer()
    def looks(self) -> None:
        raise RuntimeError(SAID)

    @orienter()
    def reads(self) -> None:
        raise ValueError(SAID)

    @strategy()
    def decide(self) -> Decision:
        return Decision(
            action=self.options.choose, params={}, rationale="r", confidence=1.0, risk="low"
        )

    @action()
    def do(self) -> None:
        raise RuntimeError(SAID)

    @action()
    def told(self) -> ActionResult:
        return ActionResult(action="told", success=False, error=SAID, duration=0.0)

    def on_decide(self, ctx: Any, decision: Decision) -> None:
        if self.options.veto:
            raise Veto(SAID)

    def on_loop_complete(self, ctx: Any) -> None:
        raise RuntimeError(SAID)


def leaks(lab: Lab) -> list[str]:
    return [text for text in everything(lab) if any(s in text for s in (URL, ASSIGNED, OPTION))]


@pytest.fixture
def lab() -> Lab:
    return Lab(Agent("a", plugins=[Leaky(inner={"one": [OPTION]})]))


def test_secrets_in_errors_of_parts_and_hooks_are_not_stored(lab: Lab) -> None:
    result = lab.run()

    assert {"leaky:looks", "leaky:reads"} <= set(re.findall(r"leaky:\w+", result.to_json()))
    assert "[redacted]" in result.to_json()
    assert result.action_results[0].error is not None
    assert "refused" in result.action_results[0].error
    assert leaks(lab) == []


def test_secrets_in_a_veto_are_not_stored() -> None:
    lab = Lab(Agent("a", plugins=[Leaky(veto=True, inner={"one": [OPTION]})]))
    result = lab.run()

    assert "Vetoed by leaky" in str(result.decision)
    assert leaks(lab) == []


def test_secrets_in_what_an_action_says_of_its_failure_are_not_stored() -> None:
    plugin = Leaky(choose="leaky:told", inner={"one": [OPTION]})
    result = (lab := Lab(Agent("a", plugins=[plugin]))).run().action_results[0]

    assert result.error is not None
    assert "refused" in result.error
    assert leaks(lab) == []


def test_a_secret_after_the_part_of_an_error_that_is_kept_does_not_show_by_half() -> None:
    class Long(Plugin):
        id = "long"

        @observer()
        def looks(self) -> None:
            raise RuntimeError("x" * 1950 + " password=" + "s3cret" * 40)

    lab = Lab(Agent("a", plugins=[Long()]))
    lab.run()

    assert not [text for text in everything(lab) if "s3cret" in text]


def test_secret_options_of_a_plugin_are_redacted_everywhere() -> None:
    Leaky(inner={"one": ["a-value-of-ours"]})

    assert redactor().redact("it has a-value-of-ours in it") == "it has [redacted] in it"


class Inner(BaseModel):
    token: SecretStr


class Direct(BaseModel):
    token: SecretStr | None = None


class Nested(BaseModel):
    many: list[Inner]


@pytest.mark.parametrize("params", [Direct, Nested])
@pytest.mark.parametrize("part", [action, tool])
def test_an_action_or_tool_with_a_secret_parameter_is_refused(part: Any, params: Any) -> None:
    def do(self: Plugin, params: Any) -> None: ...

    do.__annotations__["params"] = params
    asks = type("Asks", (Plugin,), {"id": "asks", "do": part()(do)})
    with pytest.raises(PluginError, match="take the secret from the plugin's options"):
        Agent("a", plugins=[asks()])
