"""Investigations with a real small model; what it says is poor, but how it says it is real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from boyd import Agent, Plugin, tool
from boyd.models.investigation import Compacted, Delta, Result, Said, Steered, Warned
from boyd.testing import Lab
from connection_kit import UpAgent
from harness import PYTHONPATH
from model_kit import Scene
from small_model_kit import small_model

pytestmark = [pytest.mark.long, pytest.mark.real, pytest.mark.slow]

#: All that a model may write: a call as text, as from a server without a parser for its calls.
SPOKEN_CALL = (
    r'root ::= "<tool_call>{\"name\": \"look\", \"arguments\": {\"word\": \""'
    r' [a-z] [a-z] [a-z] [a-z] [a-z] [a-z] "\"}}</tool_call>"'
)


class Word(BaseModel):
    word: str


class Library(Plugin):
    """A tool with results of some 150 tokens."""

    id = "library"

    @tool()
    def look(self, params: Word) -> str:
        """Look something up."""
        return f"{params.word}: " + "one more line of the report\n" * 25


@contextmanager
def agent_with_model(url: str, plugin: Plugin | None = None, **llm: Any) -> Iterator[Scene]:
    """An agent with that model."""
    timeouts = {"first": 300, "total": 600}
    settings = {"base_url": url, "model": "any", "timeouts": timeouts, **llm}
    lab = Lab(Agent("reader", plugins=[plugin] if plugin else [], llm=settings))
    yield Scene(lab, None, plugin)  # type: ignore[arg-type]


def test_boyd_ask_shows_what_a_real_model_answers_and_what_it_took(tmp_path: Path) -> None:
    with small_model(1024) as url:
        text = f"""
        id = "calm"
        mode = "continuous"
        [llm]
        base_url = "{url}"
        model = "any"
        max_output_tokens = 60
        prices = {{ input = 1, output = 10 }}
        timeouts = {{ first = 300, total = 600 }}
        """
        with UpAgent(tmp_path, text) as agent:
            environment = {
                **os.environ,
                "PYTHONPATH": PYTHONPATH,
                "BOYD_STATE_DIR": str(tmp_path / "state"),
            }
            boyd = [sys.executable, "-m", "boyd_cli"]
            done = subprocess.run(
                [*boyd, "ask", "What is 2+2? Answer briefly."],
                env=environment,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            [summary] = agent.ask("GET", "/investigations")["investigations"]
            whole = agent.ask("GET", f"/investigations/{summary['id']}")
    assert "4" in done.stdout
    counted = whole["counters"]
    assert counted["usage"]["inputTokens"] > 20
    assert counted["usage"]["outputTokens"] > 2
    assert not counted["usage"].get("estimated")
    paid = counted["usage"]["inputTokens"] + 10 * counted["usage"]["outputTokens"]
    assert counted["cost"] == pytest.approx(paid / 1e6)


def test_repeatedly_truncated_answers_end_the_investigation() -> None:
    with small_model(2048) as url, agent_with_model(url, max_output_tokens=12) as here:
        investigation = here.ask("Tell a long story about a ship.")

        turns = here.entries(Said)
        assert {turn.finish for turn in turns} == {"length"}
        assert {turn.usage.output_tokens for turn in turns} == {12}
        assert not any(turn.usage.estimated for turn in turns)
        assert here.entries(Delta)
        assert investigation.ending == "error"
        assert "truncated repeatedly" in (investigation.detail or "")


def test_a_call_that_comes_as_text_is_made_and_the_server_is_named() -> None:
    with (
        small_model(4096, SPOKEN_CALL) as url,
        agent_with_model(url, Library(), limits={"max_steps": 3}) as here,
    ):
        investigation = here.ask("Look up the disk.")

        [warned] = [entry for entry in here.entries(Warned) if entry.what == "spoken_calls"]
        assert "the model server returned a tool call as plain text" in warned.text
        results = here.entries(Result)
        assert {result.observation.tool for result in results} == {"look"}
        # The last step is announced; calls in it are not made.
        assert here.entries(Steered)
        assert len(here.entries(Said)) == 3
        assert len(results) == 2
        assert investigation.ending in ("max_steps", "final_synthesis")
        assert "one more line of the report" in (investigation.text or "")


def test_a_conversation_that_the_server_refuses_as_too_long_is_compacted_and_goes_on() -> None:
    limits = {"max_steps": 5}
    with (
        small_model(1024, SPOKEN_CALL) as url,
        agent_with_model(url, Library(), limits=limits, profile="off") as here,
    ):
        investigation = here.ask("Look up the disk.")

        compacted = here.entries(Compacted)
        assert compacted[0].why == "full"
        assert compacted[0].after < compacted[0].before
        after = here.log[here.log.index(compacted[0]) :]
        assert any(isinstance(entry, Said) for entry in after)
        assert investigation.ending != "error"
