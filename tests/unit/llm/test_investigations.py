"""Investigations from the question to the end, on one imaginary worker and a real HTTP server."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from pydantic import BaseModel

from boyd import Agent, ConfigError, Plugin, action
from boyd.models import Fence
from boyd.models.investigation import (
    Asked,
    Delta,
    Discarded,
    Ended,
    InvestigationRequest,
    Result,
    Said,
    Steered,
    Waits,
    Warned,
)
from boyd.store import LogChange, Verdict
from boyd.testing import TESTER, Lab, ScriptedModel
from boyd.testing.model_server import Received, call, calls, empty, hang, length, say, status
from model_kit import BOB, SECRET, Scene, Tools, Word, changing, scene


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_question_is_answered_with_what_tools_have_found(wire: str) -> None:
    with scene(call("look", {"word": "disk"}), say("The disk is full."), wire=wire) as here:
        investigation = here.ask()

        assert (investigation.status, investigation.ending, investigation.text) == (
            "ended",
            "final_answer",
            "The disk is full.",
        )
        assert here.plugin.ran == ["look disk"]
        assert investigation.counters.steps == 2
        assert investigation.counters.tool_calls == 1
        assert [type(e) for e in here.log if type(e).__name__ != "Delta"] == [
            *(Asked, Said),
            *(type(here.log[2]), Result, Said, Ended),
        ]


def test_the_calls_of_one_turn_are_made_in_order_and_each_has_one_result() -> None:
    three = calls(("look", {"word": "a"}), ("nothing", {}), ("look", {"word": "b"}))
    with scene(three, say("done")) as here:
        here.ask()

        assert here.plugin.ran == ["look a", "look b"]
        assert here.results == [("look", "succeeded"), ("nothing", "failed"), ("look", "succeeded")]
        assert "There is no tool 'nothing'" in here.entries(Result)[1].observation.output


def test_the_whole_turn_is_in_the_log_before_its_first_tool_starts() -> None:
    with scene(call("look", {"word": "a"}), say("done")) as here:
        kinds: list[str] = []

        def look(params: Word, ctx: Any) -> str:
            kinds.extend(type(entry).__name__ for entry in here.log)
            return "seen"

        part = here.lab.agent.host.tools["tools:look"]
        part._takers["run"].function = look
        here.ask()

        assert kinds == ["Asked", "Said", "Started"]


def test_the_same_call_for_ever_ends_after_three_requests_and_two_executions() -> None:
    with scene(call("look", {"word": "a"})) as here:
        investigation = here.ask()

        assert investigation.ending == "doom_loop"
        assert len(here.model.requests) == 3
        assert here.plugin.ran == ["look a", "look a"]
        assert "saw a" in (investigation.text or "")


def test_other_words_around_the_same_call_make_no_difference() -> None:
    words = (f"Let me try number {n}." for n in itertools.count())
    with scene(lambda _: call("look", {"word": "a"}, text=next(words))) as here:
        investigation = here.ask()

        assert (investigation.ending, len(here.model.requests)) == ("doom_loop", 3)
        assert len(here.plugin.ran) == 2


def test_the_same_call_many_times_in_one_turn_is_made_twice() -> None:
    five: list[Any] = [("look", {"word": "a"})] * 5
    with scene(calls(*five)) as here:
        investigation = here.ask()

        assert investigation.ending == "doom_loop"
        assert here.plugin.ran == ["look a", "look a"]
        assert [status for _, status in here.results] == ["succeeded"] * 2 + ["skipped"] * 3


def test_alternating_calls_end_as_a_cycle() -> None:
    words = itertools.cycle("ab")
    with scene(lambda _: call("look", {"word": next(words)})) as here:
        investigation = here.ask()

        assert investigation.ending == "stuck_cycle"
        assert len(here.model.requests) == 6
        assert len(here.plugin.ran) == 5


def test_asking_again_and_again_is_what_a_polling_tool_is_for() -> None:
    def reply(_: Received) -> Any:
        return say("It is done.") if len(here.plugin.ran) > 6 else call("wait", {"word": "x"})

    with scene(reply, profile="off") as here:
        investigation = here.ask()

        assert investigation.ending == "final_answer"
        assert len(here.plugin.ran) == 7


def test_ever_new_searches_end_in_a_synthesis_with_the_evidence_after_four_turns() -> None:
    with scene(changing()) as here:
        investigation = here.ask(profile="research")

        assert investigation.ending == "final_synthesis"
        assert investigation.text == "All in all it was the disk."
        assert len(here.model.requests) == 4
        last = here.model.requests[-1].body
        assert not last.get("tools")
        prompt_text = str(last["messages"])
        assert all(f"saw w{n}" in prompt_text for n in range(3))


def test_a_model_that_will_not_answer_without_tools_gets_a_digest_of_the_evidence() -> None:
    def reply(request: Received) -> Any:
        return call("look", {"word": str(len(here.model.requests))})

    with scene(reply) as here:
        investigation = here.ask(profile="research")

        assert investigation.ending == "final_synthesis"
        assert len(here.model.requests) == 5
        assert len(here.plugin.ran) == 3
        assert "saw" in (investigation.text or "")


def test_an_investigation_contains_the_counts_of_its_reflection() -> None:
    with scene(changing()) as here:
        investigation = here.ask(profile="research")

        assert investigation.reflection["successes"] == 3
        assert investigation.reflection["synthesised"] is True


def test_a_message_in_between_comes_after_all_results_of_the_turn() -> None:
    two = calls(("look", {"word": "a"}), ("look", {"word": "a"}))
    with scene(two, say("done")) as here:
        here.ask()

        kinds = [type(entry).__name__ for entry in here.log]
        steered = kinds.index("Steered")
        assert kinds[:steered].count("Result") == 2
        assert kinds.count("Steered") == 1


def test_two_empty_turns_end_an_investigation_with_a_text() -> None:
    with scene(empty()) as here:
        investigation = here.ask()

        assert (investigation.ending, len(here.model.requests)) == ("empty_turns", 2)
        assert investigation.text


def test_a_model_that_is_cut_off_again_and_again_is_an_error() -> None:
    with scene(length(say("I think that"))) as here:
        investigation = here.ask()

        assert investigation.ending == "error"
        assert "truncated" in (investigation.detail or "")
        assert "I think that" in (investigation.text or "")


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_with_a_marker_only_what_is_marked_is_the_answer(wire: str) -> None:
    aloud, answer = say("Let me see."), say("So far so good.\n\nfinal answer: The disk was full.")
    script = [aloud, call("look", {"word": "disk"}), say("It could be the disk."), answer]
    with scene(*script, wire=wire, answer_marker="FINAL ANSWER:") as here:
        investigation = here.ask()

        assert (investigation.ending, investigation.text) == ("final_answer", "The disk was full.")
        assert investigation.detail is None
        assert [entry.why for entry in here.entries(Steered)] == ["marker", "marker"]
        assert "Begin your final answer with FINAL ANSWER:" in here.model.requests[0].raw.decode()


def test_a_model_that_will_not_mark_its_answer_has_answered_all_the_same() -> None:
    with scene(say("It was the disk."), answer_marker="FINAL ANSWER:") as here:
        investigation = here.ask()

        assert (investigation.ending, investigation.text) == ("final_answer", "It was the disk.")
        assert investigation.detail == "the model did not mark its answer with 'FINAL ANSWER:'"
        assert len(here.model.requests) == 2


def test_an_answer_in_a_form_needs_no_marker() -> None:
    form = {"type": "object", "properties": {"cause": {"type": "string"}}}
    with scene(call("answer", {"cause": "disk"}), answer_marker="FINAL ANSWER:") as here:
        investigation = here.ask(answer=form)

        assert (investigation.ending, investigation.findings) == ("final_answer", {"cause": "disk"})
        assert "FINAL ANSWER" not in here.model.requests[0].raw.decode()


def test_max_steps_ends_it_with_what_was_found() -> None:
    with scene(changing(), profile="off", limits={"max_steps": 4}) as here:
        investigation = here.ask()

        assert (investigation.ending, len(here.model.requests)) == ("max_steps", 4)
        assert "saw w3" in (investigation.text or "")
        last = here.model.requests[-1]
        assert "This is your last step: 3 of 4 steps are used up" in last.raw.decode()


def test_a_client_may_ask_for_less_than_the_agent_allows_and_never_for_more() -> None:
    with scene(changing(), profile="off", limits={"max_steps": 4}) as here:
        less = here.ask(limits={"max_steps": 2})
        more = here.ask(limits={"max_steps": 9})

        assert (less.counters.steps, more.counters.steps) == (2, 4)


@pytest.mark.parametrize(
    ("limits", "detail"),
    [
        ({"max_tokens": 350}, "360 of 350 tokens"),
        ({"max_cost": 0.001}, "of $0.001"),
    ],
)
def test_a_used_up_budget_ends_it_and_four_fifths_warn(limits: dict[str, Any], detail: str) -> None:
    prices = {"input": 2.0, "output": 8.0}
    with scene(changing(), profile="off", limits=limits, prices=prices) as here:
        investigation = here.ask()

        assert investigation.ending == "budget_exhausted"
        assert detail in (investigation.detail or "")
        assert investigation.counters.cost == pytest.approx(
            (
                investigation.counters.usage.input_tokens * 2
                + investigation.counters.usage.output_tokens * 8
            )
            / 1e6
        )
        assert "saw w0" in (investigation.text or "")


def test_those_who_watch_are_warned_once_when_little_is_left() -> None:
    with scene(changing(), profile="off", limits={"max_steps": 10}) as here:
        here.ask()

        warned = [entry.what for entry in here.entries(Warned)]
        assert warned.count("steps") == 1


def test_a_failing_or_hanging_tool_is_reported_to_the_model_and_not_repeated() -> None:
    with scene(call("fail", {"word": "x"}), call("hang", {}), say("Neither works.")) as here:
        investigation = here.ask()

        assert investigation.ending == "final_answer"
        assert here.plugin.ran == ["fail x"]
        first, second = (entry.observation for entry in here.entries(Result))
        assert "no such host" in first.output
        assert second.timed_out


def test_the_same_failing_call_ends_as_a_repeated_error_when_it_cannot_even_be_made() -> None:
    with scene(call("nothing", {"word": "x"})) as here:
        investigation = here.ask()

        assert (investigation.ending, len(here.model.requests)) == ("repeated_error", 4)


def test_a_call_with_invalid_json_is_reported_and_not_executed() -> None:
    broken = call("look", '{"word": ')
    with scene(broken, say("I see.")) as here:
        here.ask()

        assert here.plugin.ran == []
        assert "not a JSON object" in here.entries(Result)[0].observation.output


def test_parameters_that_do_not_fit_name_the_field() -> None:
    with scene(call("look", {"word": 3}), say("I see.")) as here:
        here.ask()

        assert "word" in here.entries(Result)[0].observation.output
        assert here.results == [("look", "failed")]


def test_a_long_output_is_kept_in_part_and_shown_in_a_smaller_part() -> None:
    with scene(call("long", {}), say("Long.")) as here:
        here.ask()

        observation = here.entries(Result)[0].observation
        assert (observation.truncated, observation.total_bytes) == (True, 200_000)
        assert 60_000 < len(observation.output) < 66_000
        content = here.model.requests[1].body["messages"][-1]["content"]
        assert len(content) < 7_000


def test_only_marked_actions_and_tools_that_fit_are_offered() -> None:
    with scene(say("Hello.")) as here:
        here.ask(tools=["tools:l*", "note"])

        offered = {tool["function"]["name"] for tool in here.model.requests[0].body["tools"]}
        assert offered == {"look", "leak", "long", "note"}


def test_an_action_is_vetoed_for_a_model_like_for_anybody() -> None:
    with scene(call("note", {"word": "forbidden"}), say("Pity.")) as here:
        here.ask()

        assert here.plugin.ran == []
        assert "Vetoed by tools: not here" in here.entries(Result)[0].observation.output


def test_an_action_that_wants_confidence_asks_a_person() -> None:
    with scene(call("sure", {}), say("Done.")) as here:
        investigation = here.ask()

        assert investigation.status == "waiting"
        assert here.plugin.ran == []


def test_a_call_waits_for_a_person_and_goes_on_with_what_came_of_it() -> None:
    with scene(call("restart", {"word": "web"}), say("It runs again.")) as here:
        waiting = here.ask()
        assert waiting.status == "waiting"
        assert here.lab.dispatcher.hints == type(here.lab.dispatcher.hints)()
        item = here.lab.store.approvals.get(waiting.approval_id or "")
        assert item is not None
        assert item.params == {"word": "web"}
        assert item.requested_by == ["tester"]
        assert (item.confidence, item.situation_summary) == (None, None), "nobody said either"
        assert [e.approval_id for e in here.entries(Waits)] == [item.id]

        here.lab.resolver.answer(item.id, "approved", BOB)
        investigation = here.settle()

        assert (investigation.status, investigation.ending, investigation.approval_id) == (
            "ended",
            "final_answer",
            None,
        )
        assert here.plugin.ran == ["restart web"]
        assert here.results == [("restart", "succeeded")]


@pytest.mark.parametrize("verdict", ["denied", "withdrawn"])
def test_a_refusal_goes_back_to_the_model_as_such(verdict: Verdict) -> None:
    with scene(call("restart", {"word": "web"}), say("Then not.")) as here:
        waiting = here.ask()
        here.lab.resolver.answer(waiting.approval_id or "", verdict, BOB, "not today")
        investigation = here.settle()

        assert investigation.ending == "final_answer"
        assert here.results == [("restart", verdict)]
        assert "not today" in here.model.requests[-1].body["messages"][-1]["content"]
        assert here.plugin.ran == []


def test_an_approval_that_expires_goes_back_to_the_model_as_expired() -> None:
    plugin = Tools()
    with ScriptedModel([call("restart", {"word": "web"}), say("Then not.")]) as model:
        llm = {"base_url": f"{model.url}/v1", "model": "scripted"}
        lab = Lab(Agent("d", plugins=[plugin], llm=llm, approvals={"ttl": 0.5}))
        here = Scene(lab, model, plugin)
        waiting = here.ask()
        assert waiting.approval_id
        while here.found.status != "ended":
            time.sleep(0.02)
            here.settle()

        assert here.results == [("restart", "expired")]


def test_the_asker_of_an_investigation_may_not_approve_its_actions() -> None:
    with scene(call("restart", {"word": "web"}), say("done")) as here:
        waiting = here.ask()

        verdict = here.lab.resolver.answer(waiting.approval_id or "", "approved", TESTER)

        assert verdict.outcome == "requester"


def test_the_author_of_a_follow_up_may_not_approve_the_resulting_action() -> None:
    with scene(say("Nothing."), call("restart", {"word": "web"}), say("done")) as here:
        here.ask()
        here.lab.launcher.go_on(here.id, "Then restart web", BOB)
        waiting = here.settle()

        verdict = here.lab.resolver.answer(waiting.approval_id or "", "approved", BOB)

        assert verdict.outcome == "requester"


def test_two_investigations_that_want_the_same_ask_twice() -> None:
    twice = [call("restart", {"word": "web"})] * 2
    with scene(*twice, say("done")) as here:
        first = here.ask()
        with_first = here.id
        second = here.ask("And why else?")
        assert first.approval_id != second.approval_id
        here.lab.resolver.answer(first.approval_id or "", "denied", BOB)
        here.settle()

        assert here.found.status == "waiting"
        investigation = here.lab.store.investigations.get(with_first)
        assert investigation is not None
        assert investigation.status == "ended"


def test_an_approval_is_consumed_once_however_often_messages_come() -> None:
    with scene(call("restart", {"word": "web"}), say("done")) as here:
        waiting = here.ask()
        for _ in range(3):
            here.lab.resolver.answer(waiting.approval_id or "", "approved", BOB)
        hints = list(here.lab.dispatcher.hints) * 3
        here.lab.dispatcher.hints.extend(hints)
        here.settle()

        assert here.plugin.ran == ["restart web"]
        assert here.results == [("restart", "succeeded")]


def test_cancelling_ends_it_and_withdraws_what_it_has_asked_for() -> None:
    with scene(call("restart", {"word": "web"}), say("done")) as here:
        waiting = here.ask()
        assert here.lab.store.investigations.cancel(here.id, BOB) == "ok"
        investigation = here.settle()

        assert (investigation.ending, investigation.cancelled_by) == ("cancelled", "bob")
        item = here.lab.store.approvals.get(waiting.approval_id or "")
        assert item is not None
        assert item.status == "withdrawn"
        assert here.lab.store.investigations.cancel(here.id, BOB) == "over"
        assert here.lab.store.investigations.cancel("nobody", BOB) == "unknown"


def test_a_follow_up_question_continues_an_ended_conversation() -> None:
    with scene(call("look", {"word": "a"}), say("One."), say("Two.")) as here:
        here.ask()
        assert here.lab.launcher.go_on(here.id, "And now?", TESTER)
        assert not here.lab.launcher.go_on(here.id, "Too early", TESTER)
        investigation = here.settle()

        assert (investigation.status, investigation.text) == ("ended", "Two.")
        messages = here.model.requests[-1].body["messages"]
        contents = [message["content"] for message in messages if message["role"] == "user"]
        assert contents == ["Why?", "And now?"]
        assert here.entries(Ended)[-1].counters.steps == 3


def test_an_answer_that_has_to_fit_a_form_is_put_right_by_the_model() -> None:
    form = {
        "type": "object",
        "properties": {"cause": {"type": "string"}},
        "required": ["cause"],
        "additionalProperties": False,
    }
    wrong, right = call("answer", {"why": 1}), call("answer", {"cause": "disk"})
    with scene(say("It was the disk."), wrong, right) as here:
        investigation = here.ask(answer=form)

        assert (investigation.ending, investigation.findings) == ("final_answer", {"cause": "disk"})
        assert len(here.model.requests) == 3
        assert here.results == [("answer", "failed"), ("answer", "succeeded")]


def test_a_model_that_refuses_ends_it_with_the_reason_and_what_was_found() -> None:
    with scene(call("look", {"word": "a"}), status(401)) as here:
        investigation = here.ask()

        assert investigation.ending == "error"
        assert "401" in (investigation.detail or "")
        assert "saw a" in (investigation.text or "")


def test_a_registered_secret_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_API_KEY", SECRET)
    script = [
        call("leak", {}),
        call("look", {"word": SECRET}, text=f"The key {SECRET} is in the open."),
        say(f"It is {SECRET}."),
    ]
    with scene(*script, api_key_env="TEST_API_KEY") as here:
        investigation = here.ask(f"Is {SECRET} known?")

        assert here.plugin.ran == []
        assert SECRET not in str(here.log) + str(investigation)
        assert all(SECRET not in request.raw.decode() for request in here.model.requests[1:])
        assert all(
            SECRET not in str(here.lab.client.dump(key)) for key in here.lab.client.scan_iter("*")
        )


def test_a_run_of_the_kind_investigation_ends_with_it() -> None:
    from boyd.models import RunRequest

    with scene(call("look", {"word": "a"}), say("It was a.")) as here:
        run = RunRequest(title="Why", description="is it so?", kind="investigation")
        request = InvestigationRequest(question="Why is it so?")
        here.id = here.lab.launcher.ask(request, TESTER, here.lab.engine.retention, run=run)
        began = here.lab.store.runs.get(here.id)
        assert began is not None
        assert began.status == "investigating"
        here.settle()

        record = here.lab.store.runs.get(here.id)
        assert record is not None
        assert record.result is not None
        assert (record.status, record.result.summary) == ("completed", "It was a.")
        assert [done_action.action for done_action in record.result.actions_performed] == ["look"]


def test_cancelling_a_run_cancels_its_investigation() -> None:
    from boyd.models import RunRequest

    with scene(call("restart", {"word": "web"}), say("done")) as here:
        run = RunRequest(title="Why", description="is it so?", kind="investigation")
        request = InvestigationRequest(question="Why is it so?")
        here.id = here.lab.launcher.ask(request, TESTER, here.lab.engine.retention, run=run)
        here.settle()
        here.lab.store.runs.cancel(here.id, BOB, here.lab.engine.retention, "no more")
        investigation = here.settle()

        assert investigation.ending == "cancelled"
        record = here.lab.store.runs.get(here.id)
        assert record is not None
        assert record.status == "cancelled"


class Asking(Plugin):
    """Investigates what it sees, and looks for the answer in the next iteration."""

    id = "asking"
    seen: list[tuple[str, str | None]]

    def on_loop_start(self, ctx: Any) -> None:
        """Ask, or find."""
        investigation = ctx.llm.investigate("disk", "Why is the disk full?")
        self.seen.append((investigation.status, investigation.text))


def test_a_plugin_begins_an_investigation_once_and_an_iteration_finds_it_ended() -> None:
    plugin = Asking()
    plugin.seen = []
    with ScriptedModel([say("Logs.")]) as model:
        llm = {"base_url": f"{model.url}/v1", "model": "scripted"}
        lab = Lab(Agent("d", plugins=[plugin], llm=llm))
        lab.run()

        assert plugin.seen == [("running", None), ("ended", "Logs.")]
        assert len(model.requests) == 1


class Mood(BaseModel):
    """An answer of a form."""

    mood: int


def test_a_plugin_gets_an_answer_in_a_form_which_is_put_right_once() -> None:
    answers: list[Any] = []

    class Moody(Plugin):
        id = "moody"

        def on_loop_start(self, ctx: Any) -> None:
            answers.append(ctx.llm.answer("How is it?", Mood))
            answers.append(ctx.llm.ask("And why?"))

    script = [say('{"mood": "bad"}'), call("answer", {"mood": 3}), say("Because.")]
    with ScriptedModel(script) as model:
        llm = {"base_url": f"{model.url}/v1", "model": "scripted"}
        Lab(Agent("d", plugins=[Moody()], llm=llm)).run()

        assert answers == [Mood(mood=3), "Because."]


def test_an_action_executed_before_a_cancel_is_recorded_as_succeeded() -> None:
    with scene(call("restart", {"word": "web"}), say("done")) as here:
        waiting = here.ask()
        here.lab.resolver.answer(waiting.approval_id or "", "approved", BOB)
        while here.plugin.ran == []:
            here.lab.step()
        here.lab.store.investigations.cancel(here.id, BOB)
        investigation = here.settle()

        assert investigation.ending == "cancelled"
        assert here.plugin.ran == ["restart web"]
        assert here.results == [("restart", "succeeded")]


def test_an_approved_action_does_not_start_after_a_cancel() -> None:
    with scene(call("restart", {"word": "web"}), say("done")) as here:
        waiting = here.ask()
        here.lab.resolver.answer(waiting.approval_id or "", "approved", BOB)
        here.lab.store.investigations.cancel(here.id, BOB)
        investigation = here.settle()

        assert investigation.ending == "cancelled"
        assert here.plugin.ran == []
        assert [name for name, status in here.results if status == "succeeded"] == []


def test_the_same_answer_that_does_not_fit_ends_it_as_a_repeated_error() -> None:
    form = {"type": "object", "properties": {"cause": {"type": "string"}}, "required": ["cause"]}
    with scene(call("answer", {"why": 1})) as here:
        investigation = here.ask(answer=form)

        assert (investigation.ending, len(here.model.requests)) == ("repeated_error", 4)


def test_a_copy_of_a_message_does_not_enter_it_on_another_queue() -> None:
    with scene(call("look", {"word": "a"}), say("done")) as here:
        request = InvestigationRequest(question="Why?")
        here.id = here.lab.launcher.ask(request, TESTER, here.lab.engine.retention)
        copy = here.lab.dispatcher.hints[0]
        here.lab.step()
        here.lab.dispatcher.hints.appendleft(copy)
        here.lab.step()

        assert here.plugin.ran == []
        assert here.settle().ending == "final_answer"


def test_pieces_of_a_turn_that_lost_its_worker_are_taken_back() -> None:
    with scene(say("It was the disk.")) as here:
        request = InvestigationRequest(question="Why?")
        here.id = here.lab.launcher.ask(request, TESTER, here.lab.engine.retention)
        name = f"investigation:{here.id}"
        here.lab.store.jobs.enter(name, 1, "lost/1")
        piece = Delta(step=1, channel="text", text="It was the netw")
        fence = Fence(name, 1, "lost/1")
        here.lab.store.investigations.write(here.id, fence, None, LogChange([piece]))
        here.lab.store.jobs.put_back(Fence(name, 1, "lost/1"), 0)
        here.lab.dispatcher.hints.append(("job", name, 2))
        investigation = here.settle()

        assert investigation.text == "It was the disk."
        assert [entry.why for entry in here.entries(Discarded)] == ["its worker was lost"]


def test_an_agent_that_has_lost_its_model_ends_what_it_was_asked() -> None:
    with scene(say("never")) as here:
        request = InvestigationRequest(question="Why?")
        here.id = here.lab.launcher.ask(request, TESTER, here.lab.engine.retention)
        bare = Lab(Agent("detective", plugins=[Tools()]), client=here.lab.client)
        bare.dispatcher.hints.extend(here.lab.dispatcher.hints)
        bare.deliver()

        assert here.found.ending == "error"
        assert "no longer has a model" in (here.found.text or "")


def test_a_turn_that_takes_longer_than_there_is_time_is_given_up() -> None:
    with scene(hang(30, say("late")), limits={"max_seconds": 0.3}) as here:
        investigation = here.ask()

        assert investigation.ending == "deadline"
        assert investigation.text


class Careful(Plugin):
    """Has a preview that tells too much."""

    id = "careful"

    @action(tool=True, autonomy="approval-required")
    def wipe(self, params: Word) -> str:
        """Wipe something."""
        return "wiped"

    @wipe.dry_run
    def _would_wipe(self, params: Word) -> str:
        return f"would wipe with {SECRET}"


def test_a_preview_is_as_free_of_secrets_as_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_API_KEY", SECRET)
    with ScriptedModel([call("wipe", {"word": "x"})]) as model:
        llm = {"base_url": f"{model.url}/v1", "model": "scripted"}
        lab = Lab(Agent("d", plugins=[Careful()], llm=llm))
        lab.launcher.ask(InvestigationRequest(question="Why?"), TESTER, lab.engine.retention)
        lab.deliver()
        [item] = lab.store.approvals.page(5).pending

        assert item.preview is not None
        assert SECRET not in item.to_json()


class Odd(Plugin):
    """Says something that looks like an observation and is none."""

    id = "odd"

    @action(tool=True)
    def look(self, params: Word) -> dict[str, Any]:
        """Look."""
        return {"schema": "boyd.tool_observation.v1", "output": 5}


def test_an_output_that_only_looks_like_an_observation_is_an_output() -> None:
    with ScriptedModel([call("look", {"word": "x"}), say("Odd.")]) as model:
        llm = {"base_url": f"{model.url}/v1", "model": "scripted"}
        plugin = Odd()
        lab = Lab(Agent("d", plugins=[plugin], llm=llm))
        here = Scene(lab, model, plugin)
        investigation = here.ask()

        assert investigation.ending == "final_answer"
        assert here.results == [("look", "succeeded")]


def test_an_agent_without_a_model_says_so() -> None:
    errors: list[str] = []

    class Curious(Plugin):
        id = "curious"

        def on_loop_start(self, ctx: Any) -> None:
            assert not ctx.has_llm
            try:
                ctx.llm.ask("Anybody there?")
            except ConfigError as error:
                errors.append(str(error))

    Lab(Agent("d", plugins=[Curious()])).run()

    assert "has no model" in errors[0]
