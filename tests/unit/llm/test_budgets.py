"""Budgets of an agent and its plugins for a model, and refusals beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import BaseModel, ValidationError

from boyd import Agent, ConfigError, Plugin
from boyd.llm.model_errors import ModelError
from boyd.models.investigation import InvestigationRequest, Wanted
from boyd.settings.model import ModelSettings
from boyd.testing import TESTER, Lab, ScriptedModel
from boyd.testing.model_server import Step, call, hang, say
from boyd_cli.commands.check_commands import check

URL = "http://127.0.0.1:9/v1"
UNPRICED = "limits.max_cost is never reached without prices: set prices.input and prices.output"


def test_a_limit_on_money_without_prices_is_refused() -> None:
    with pytest.raises(ValidationError, match=UNPRICED):
        ModelSettings.model_validate({"base_url": URL, "model": "m", "limits": {"max_cost": 0.5}})


def test_an_agent_with_a_limit_on_money_and_no_prices_cannot_be_made() -> None:
    llm = {"base_url": URL, "model": "m", "limits": {"max_cost": 0.5}}

    with pytest.raises(ConfigError, match=UNPRICED):
        Agent("d", llm=llm)


@pytest.mark.parametrize("prices", [{"input": 1.0}, {"output": 1.0}, {"input": 1, "output": 2}])
def test_one_price_is_enough_for_a_limit_on_money(prices: dict[str, float]) -> None:
    llm = {"base_url": URL, "model": "m", "limits": {"max_cost": 0.5}, "prices": prices}

    assert Agent("d", llm=llm).settings.llm


def test_the_check_names_the_setting_and_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(f'id = "d"\n[llm]\nbase_url = "{URL}"\nmodel = "m"\nlimits.max_cost = 0.5\n')
    done = CliRunner().invoke(check, [str(file)])

    assert done.exit_code != 0
    assert f"llm: {UNPRICED}" in " ".join(done.output.split())


def test_a_cost_limit_without_prices_fails_before_the_first_request() -> None:
    with ScriptedModel([say("It was the disk.")]) as model:
        lab = Lab(Agent("d", llm={"base_url": f"{model.url}/v1", "model": "m"}))
        request = InvestigationRequest(question="Why?", limits=Wanted(max_cost=0.5))
        id = lab.launcher.ask(request, TESTER, lab.engine.retention)
        lab.deliver()
        investigation = lab.store.investigations.get(id)

        assert investigation is not None
        assert (investigation.ending, model.requests) == ("error", [])
        assert "has no llm.prices" in (investigation.detail or "")


class Mood(BaseModel):
    """An answer of a form."""

    mood: int


class Moody(Plugin):
    """Asks the model for its mood."""

    id = "moody"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.errors: list[ModelError] = []

    def on_loop_start(self, ctx: Any) -> None:
        """Ask, and keep what goes wrong."""
        try:
            ctx.llm.answer("How is it?", Mood)
        except ModelError as error:
            self.errors.append(error)


def moods(*script: Step, **llm: Any) -> tuple[list[str], int]:
    """The errors of a plugin's question, and the number of its requests."""
    plugin = Moody()
    with ScriptedModel(list(script)) as model:
        settings = {"base_url": f"{model.url}/v1", "model": "m", **llm}
        Lab(Agent("d", plugins=[plugin], llm=settings)).run()
        return [str(error) for error in plugin.errors], len(model.requests)


def test_an_answer_that_does_not_fit_is_not_put_right_beyond_the_limit_of_tokens() -> None:
    script = (say("Good."), call("answer", {"mood": 3}))

    assert moods(*script) == ([], 2)
    assert moods(*script, limits={"max_tokens": 100}) == (
        ["no further request to the model: 120 of 100 tokens are used up"],
        1,
    )


def test_an_answer_that_does_not_fit_is_not_put_right_beyond_the_limit_of_money() -> None:
    dear = {"prices": {"output": 1e6}, "limits": {"max_cost": 1.0}}
    wrong, requests = moods(say("Good."), call("answer", {"mood": 3}), **dear)

    assert requests == 1
    assert "of $1.00 are used up" in wrong[0]


def test_a_question_of_a_plugin_ends_at_the_time_limit_of_the_agent() -> None:
    wrong, _ = moods(hang(30, say("late")), limits={"max_seconds": 0.3})

    assert wrong == ["the model took too long"]
