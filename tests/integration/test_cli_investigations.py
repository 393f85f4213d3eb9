"""`boyd ask`, `chat` and `investigations` as somebody uses them who wants to know something."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from api_kit import InlineDispatcher
from boyd.models import ApprovalPolicy, Autonomy
from boyd.models.investigation import Investigation
from boyd.plugin import Action, Tool
from boyd.store import Store
from boyd.testing.model_server import Reply, ScriptedModel, call, calls, say
from cli_kit import Cli, Terminal, lab_of, new_key, read_until, serving
from harness import free_port, wait_until
from kit import LAX, person

pytestmark = pytest.mark.real

GATED = Autonomy(mode="approval-required")
#: What a terminal is told when a prompt begins.
PROMPT = "\x1b[?2004h"
LOOK = call("look", {"path": "/var"})


class Study:
    """An agent with a model that follows a script, an imaginary worker, and `ann`, who asks."""

    def __init__(
        self, redis_url: str, store: Store, folder: Path, required: ApprovalPolicy = LAX
    ) -> None:
        self.redis_url = redis_url
        self.model = ScriptedModel([say("It is **full**.")], forever=True)
        self.going = threading.Event()
        self.going.set()
        self.lab = lab_of(
            store,
            Tool(name="look", run=self.look, description="Look at a folder."),
            Action(name="move", execute=lambda: "moved", tool=True, autonomy=GATED),
            llm={"base_url": f"{self.model.url}/v1", "model": "scripted"},
            approvals={"required": required.model_dump()},
        )
        self.dispatcher = InlineDispatcher(self.lab)
        self.cli = Cli(folder, BOYD_API_KEY=self.key("ann"), PROMPT_TOOLKIT_NO_CPR="1")

    def key(self, principal: str, *scopes: Any) -> str:
        """A key of a person."""
        granted_scopes = scopes or ("read", "runs", "approvals")
        return new_key(self.redis_url, principal, *granted_scopes, person=True)

    def look(self) -> str:
        """Look, when it may."""
        self.going.wait(120)
        return "99 %"

    def will(self, *replies: Reply) -> None:
        """Let the model answer so; the last one again and again."""
        self.model._replies = list(replies)
        self.model.requests.clear()

    @property
    def last(self) -> Investigation:
        """The newest investigation."""
        return self.lab.store.investigations.page(1).investigations[0]

    @property
    def waiting(self) -> str:
        """The approval that is waited for."""
        return self.lab.store.approvals.page(1).pending[0].id

    def deliver_first(self) -> None:
        """Let the worker take the first job, once it was sent."""
        wait_until(lambda: self.lab.dispatcher.hints)
        self.lab.deliver()

    def resolve(self) -> None:
        """Let the worker do what was approved, and go on with what has waited for it."""
        for _ in range(2):
            self.lab.deliver()
            self.lab.sweeper.sweep()
        self.lab.deliver()

    def work(self) -> threading.Thread:
        """Let the worker take what there is, beside the test."""
        worker = threading.Thread(target=self.lab.deliver)
        worker.start()
        return worker


@pytest.fixture
def study(redis_url: str, store: Store, tmp_path: Path) -> Iterator[Study]:
    """A study in which nobody has asked anything."""
    new_study = Study(redis_url, store, tmp_path)
    with new_study.model, serving(redis_url, dispatcher=new_study.dispatcher) as api:
        new_study.cli.environment["BOYD_URL"] = api.url
        yield new_study


@pytest.fixture
def cli(study: Study) -> Cli:
    """The commands."""
    return study.cli


class Talk:
    """Somebody at a terminal, who waits for what comes before typing something."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self._heard = 0

    def hears(self, text: str) -> None:
        """Wait for *text*, after what was waited for before."""
        while text not in self.terminal.text[self._heard :]:
            chunk = self.terminal._read()
            assert chunk, f"ended before {text!r}: {self.terminal.text}"
            self.terminal.text += chunk
        self._heard = self.terminal.text.index(text, self._heard) + len(text)

    def types(self, text: str, after: str = PROMPT) -> None:
        """Type *text* after *after*, which is the next prompt unless given."""
        self.hears(after)
        self.terminal.type(text)

    def leaves(self) -> str:
        """Leave at the next prompt; all that was said."""
        self.types("\x04")
        text = self.terminal.rest()
        assert self.terminal.process.wait(120) == 0
        return text


@contextmanager
def talking(study: Study, *arguments: str) -> Iterator[Talk]:
    """A chat on a terminal."""
    with study.cli.terminal("chat", *arguments, NO_COLOR="1") as terminal:
        yield Talk(terminal)


# Asking


def test_into_a_pipe_goes_the_answer_alone_and_elsewhere_what_was_done(study: Study) -> None:
    study.will(calls(("look", {"path": "/var"}), text="Let me look."), say("It is **full**."))
    done = study.cli.result("ask", "Why?")

    assert (done.exit_code, done.stdout) == (0, "It is **full**.\n")
    assert done.stderr.splitlines()[:2] == ["Let me look.", "→ #1 look path=/var"]
    assert "    99 %" in done.stderr
    assert "final_answer: 2 steps, 1 tool call, " in done.stderr


def test_on_a_terminal_everything_is_rendered_where_it_happens(study: Study) -> None:
    study.will(LOOK, say("# Found\n\nIt is **full**."))
    screen = study.cli.on_terminal("ask", "Why?", NO_COLOR="1")

    assert re.search(
        r"→ #1 look path=/var.*ok.*99 %.*Found.*It is .*full.*final_answer", screen, re.DOTALL
    )
    # A block is drawn as it comes until it is whole; this is what stays of it.
    assert re.search(r"It is (\x1b\[[0-9;]*m)*full", screen)
    assert screen.count("Found") == 1


def test_the_question_may_come_from_a_pipe(study: Study) -> None:
    study.cli.result("ask", "-", stdin="Why is it\nso slow?\n")
    assert study.last.question == "Why is it\nso slow?\n"


def test_ask_options_set_profile_tools_and_limits(study: Study) -> None:
    options = ["--reflection", "research", "--tools", "lo*", "--tools", "x", "--max-steps", "2"]
    study.cli.result("ask", "Why?", *options)
    investigation = study.last

    assert (investigation.profile, investigation.tools) == ("research", ["lo*", "x"])
    assert investigation.limits is not None
    assert investigation.limits.max_steps == 2


def test_an_investigation_is_printed_as_json(cli: Cli) -> None:
    for option in (["--json"], ["-o", "json"]):
        data = json.loads(cli.result("ask", "Why?", *option).stdout)
        assert (data["ending"], data["text"]) == ("final_answer", "It is **full**.")


def test_without_following_its_id_is_printed(study: Study) -> None:
    study.dispatcher.held = True
    assert study.cli("ask", "Why?", "--no-follow") == f"{study.last.id}\n"
    assert study.cli.json("ask", "Why?", "--no-follow")["status"] == "running"


def test_an_end_without_an_answer_is_named_and_has_a_status_of_its_own(study: Study) -> None:
    study.will(LOOK)
    done = study.cli.result("ask", "Why?", "--max-steps", "1")

    assert done.exit_code == 1
    assert "ended by max_steps" in done.stderr
    assert "99 %" in done.stdout


def test_a_waiting_call_shows_how_to_approve_it(study: Study) -> None:
    study.will(call("move"), say("Moved."))
    with study.cli.running("ask", "Why?") as asking:
        line = read_until(asking.stderr, "approvals approve")[-1]
        name = re.findall(r"approve (\w+)`", line)[0]
        study.cli("approvals", "approve", "--yes", name)
        study.resolve()
        out, errors = asking.communicate(timeout=120)

    assert out == "Moved.\n"
    assert "  #1 move: ok" in errors


def test_a_failed_attempt_is_shown(study: Study) -> None:
    half = "This is half of what it wanted to say"
    study.will(Reply(text=half, end="cut", after=3), say("Whole."))
    done = study.cli.result("ask", "Why?")

    assert done.stdout == "Whole.\n"
    # It depends on the time whether something of it was shown already.
    assert re.search(r"! (withdrawn|attempt 1 failed): ", done.stderr)


def test_an_interrupted_command_says_that_the_investigation_goes_on(study: Study) -> None:
    study.dispatcher.held = True
    study.will(call("move"), say("Moved."))
    with study.cli.running("ask", "Why?") as asking:
        study.deliver_first()
        read_until(asking.stderr, "approvals approve")
        asking.send_signal(signal.SIGINT)
        assert asking.wait(120) == 130
        errors = asking.stderr.read()

    assert f"investigations follow {study.last.id[:8]}`" in errors
    assert f"investigations cancel {study.last.id[:8]}`" in errors
    assert study.last.status == "waiting"


def test_an_api_that_comes_back_is_gone_on_with(
    redis_url: str, store: Store, tmp_path: Path
) -> None:
    study = Study(redis_url, store, tmp_path)
    port = free_port()
    study.dispatcher.held = True
    study.cli.environment["BOYD_URL"] = f"http://127.0.0.1:{port}"
    study.will(LOOK, call("move"), say("Moved."))
    with study.model:
        with serving(redis_url, port, study.dispatcher):
            asking = study.cli.running("ask", "Why?")
            process = asking.__enter__()
            study.deliver_first()
            read_until(process.stderr, "approvals approve")
        read_until(process.stderr, "retrying until it is back")
        with serving(redis_url, port, study.dispatcher):
            read_until(process.stderr, "the API is back")
            study.cli("approvals", "approve", "--yes", study.waiting, "--wait", "0")
            study.resolve()
            out, errors = process.communicate(timeout=120)
        asking.__exit__(None, None, None)

    assert out == "Moved.\n"
    assert "→" not in errors


def test_an_agent_without_a_model_cannot_be_asked(cli: Cli, store: Store) -> None:
    lab_of(store)
    assert "has no model" in cli("ask", "Why?", status=5)


def test_a_chat_with_an_agent_without_a_model_is_refused_before_anything_is_asked(
    cli: Cli, store: Store
) -> None:
    lab_of(store)
    assert "has no model" in cli("chat", status=5, stdin="")


def test_a_reader_cannot_ask(study: Study) -> None:
    key = study.key("eve", "read")
    assert study.cli.result("ask", "Why?", BOYD_API_KEY=key).exit_code != 0
    assert study.lab.store.investigations.page(1).total == 0


# Looking


def test_investigations_are_listed_newest_first(cli: Cli) -> None:
    assert cli("investigations", "list") == "No investigations found.\n"
    for question in ("first?", "second?"):
        cli.result("ask", question)
    header, *lines = cli("investigations", "list").splitlines()

    columns = ["ID", "STATUS", "TOOK", "TOKENS", "COST", "AGE", "STEPS", "SOURCE", "ASKED BY"]
    assert re.split(r"  +", header) == [*columns, "ABOUT"]
    rows = [re.split(r"  +", line) for line in lines]
    assert [row[-1] for row in rows] == ["second?", "first?"]
    assert rows[0][1] == "final_answer"
    assert int(rows[0][3]) > 0
    assert len(cli.json("investigations", "list", "--limit", "1")) == 1


def test_a_tool_call_is_shown_by_its_number_with_all_of_its_output(study: Study) -> None:
    study.will(LOOK, say("Full (#1)."))
    study.cli.result("ask", "Why?")
    name = study.last.id[:8]
    output = study.cli("investigations", "show", name, "--call", "1")

    assert output.startswith('#1 look\n  {\n    "path": "/var"\n  }\nok')
    assert output.endswith("\n\n99 %\n")
    body = study.cli.json("investigations", "show", name, "--call", "1")
    assert body["result"]["output"] == "99 %"
    assert "has no call #2" in study.cli("investigations", "show", name, "--call", "2", status=4)


def test_an_investigation_is_shown_with_its_answer(study: Study) -> None:
    study.cli.result("ask", "Why?")
    output = study.cli("investigations", "show", study.last.id[:8])

    assert output.startswith("Why?: final_answer\n")
    assert re.search(r"asked by +ann", output)
    assert re.search(r"used +1 step, 0 tool calls, \d+ tokens", output)
    assert output.endswith("\nIt is **full**.\n")
    assert study.cli.json("investigations", "show", study.last.id)["ending"] == "final_answer"
    assert study.cli.result("investigations", "show", "nothing").exit_code == 4


def test_an_investigation_is_followed_from_its_beginning(study: Study) -> None:
    study.will(LOOK, say("Full."))
    study.cli.result("ask", "Why?")
    lines = study.cli("investigations", "follow", study.last.id[:8]).splitlines()

    assert lines[:2] == ["> Why?", "→ #1 look path=/var"]
    assert lines[-2] == "Full."
    assert lines[-1].startswith("final_answer: 2 steps")


def test_a_conversation_is_followed_to_its_last_end(study: Study) -> None:
    study.cli.result("chat", stdin="Why?\nAnd now?\n")
    output = study.cli("investigations", "follow", study.last.id[:8])

    assert output.count("> ") == 2
    assert output.count("final_answer: ") == 2


def test_followed_entries_can_be_read_by_programs(study: Study) -> None:
    study.cli.result("ask", "Why?")
    lines = study.cli.result("investigations", "follow", study.last.id, "-o", "json").stdout
    kinds = [json.loads(line)["entry"]["kind"] for line in lines.splitlines()]
    assert (kinds[0], kinds[-2:]) == ("asked", ["said", "ended"])


def test_an_end_that_the_log_does_not_have_is_shown(study: Study) -> None:
    study.cli.result("ask", "Why?")
    store = study.lab.store.investigations
    study.lab.client.delete(store._names(study.last.id)["log"])
    output = study.cli("investigations", "follow", study.last.id)

    assert output.splitlines()[0] == "It is **full**."
    assert study.cli.result("chat", study.last.id, stdin="").exit_code == 0


def test_an_investigation_is_cancelled(study: Study) -> None:
    study.dispatcher.held = True
    study.cli("ask", "Why?", "--no-follow")
    name = study.last.id[:8]

    output = study.cli("investigations", "cancel", name)
    assert output == f"investigation {name} is being cancelled\n"
    study.lab.deliver()
    followed = study.cli.result("investigations", "follow", name)
    assert followed.exit_code == 1
    assert "ended by cancelled: cancelled by ann" in followed.stdout
    assert "has already ended" in study.cli("investigations", "cancel", name, status=5)


# Talking


def test_each_line_of_a_pipe_is_a_question(study: Study) -> None:
    study.will(say("One."), say("Two."))
    done = study.cli.result("chat", stdin="Why?\n\nAnd now?")

    assert (done.exit_code, done.stdout) == (0, "One.\nTwo.\n")
    assert f"chat {study.last.id[:8]}` continues" in done.stderr
    heard = [message["content"] for message in study.model.requests[-1].body["messages"][1:]]
    assert heard == ["Why?", "One.", "And now?"]


def test_a_chat_through_a_pipe_fails_with_its_last_question(study: Study) -> None:
    study.will(LOOK)
    done = study.cli.result("chat", "--max-steps", "1", stdin="Why?\n")
    assert done.exit_code == 1
    assert "ended by max_steps" in done.stderr


def test_a_chat_goes_on_with_an_earlier_one(study: Study) -> None:
    study.cli.result("ask", "Why?")
    name = study.last.id[:8]
    done = study.cli.result("chat", name, stdin="And now?\n")

    assert done.stderr.startswith("> Why?\nIt is **full**.\n")
    assert study.lab.store.investigations.page(9).total == 1
    assert study.last.counters.steps == 2


def test_questions_asked_by_others_meanwhile_are_shown_first(study: Study) -> None:
    with talking(study) as talk:
        talk.types("Why?\r")
        talk.hears("final_answer")
        study.cli.result("chat", study.last.id, stdin="Something else?\n")
        talk.types("And now?\r")
        talk.hears("> Something else?")
        talk.hears("2 steps")
        talk.hears("3 steps")
        talk.leaves()


def test_a_conversation_on_a_terminal(study: Study) -> None:
    study.will(LOOK, say("It is **full**."))
    with talking(study) as talk:
        talk.types("Why?\r")
        talk.types("\x03")
        talk.hears("Ctrl-D leaves")
        screen = talk.leaves()

    assert "→ #1 look path=/var" in screen
    assert "**" not in screen
    assert f"chat {study.last.id[:8]}` continues this conversation" in screen


def test_the_questions_of_a_conversation_can_be_called_back(study: Study) -> None:
    study.cli.result("ask", "Why is it full?")
    with talking(study, study.last.id[:8]) as talk:
        talk.types("\x1b[A\r")
        talk.hears("2 steps")
        talk.leaves()
    heard = [message["content"] for message in study.model.requests[-1].body["messages"][1:]]
    assert heard == ["Why is it full?", "It is **full**.", "Why is it full?"]


def test_ctrl_c_cancels_the_question_and_not_the_conversation(study: Study) -> None:
    study.dispatcher.held = True
    study.going.clear()
    study.will(LOOK, say("Full."))
    with talking(study) as talk:
        talk.types("Why?\r")
        wait_until(lambda: study.lab.dispatcher.hints)
        worker = study.work()
        talk.hears("→ #1 look")
        talk.terminal.process.send_signal(signal.SIGINT)
        talk.hears("The question is cancelled")
        wait_until(lambda: study.last.cancelled_by)
        study.going.set()
        talk.hears("ended by cancelled")
        worker.join()
        study.dispatcher.held = False
        talk.types("And now?\r")
        talk.hears("final_answer")
        talk.leaves()


def test_a_conversation_that_is_not_over_is_taken_up_where_it_is(study: Study) -> None:
    study.will(call("move"), say("Moved."))
    study.cli("ask", "Why?", "--no-follow")
    with talking(study, study.last.id[:8]) as talk:
        talk.hears("> Why?")
        talk.types("n\r", after="Approve?")
        talk.types("\r", after="Reason")
        talk.hears("is denied")
        study.resolve()
        talk.hears("final_answer")
        talk.leaves()


def test_ctrl_c_twice_leaves_and_says_how_to_come_back(study: Study) -> None:
    study.dispatcher.held = True
    with talking(study) as talk:
        talk.types("Why?\r")
        for text in ("waiting for the model", "cancelled"):
            talk.hears(text)
            talk.terminal.process.send_signal(signal.SIGINT)
        talk.hears("continues this conversation")
        assert talk.terminal.process.wait(120) == 130
    study.lab.deliver()

    assert study.last.ending == "cancelled"


def test_an_approver_can_approve_inside_the_conversation(study: Study) -> None:
    study.will(call("move"), say("Moved."))
    with talking(study) as talk:
        talk.types("Please?\r")
        talk.types("y\r", after="Approve?")
        talk.types("so be it\r", after="Reason")
        talk.hears("is approved")
        study.resolve()
        talk.hears("move: ok")
        talk.hears("final_answer")
        talk.leaves()

    item = study.lab.store.approvals.page(1).history[0]
    assert (item.acted_by, item.note) == ("ann", "so be it")


def test_a_denial_goes_back_to_the_model_with_its_reason(study: Study) -> None:
    study.will(call("move"), say("Then not."))
    with talking(study) as talk:
        talk.types("Please?\r")
        talk.types("n\r", after="Approve?")
        talk.types("not today\r", after="Reason")
        talk.hears("is denied")
        study.resolve()
        talk.hears("move: denied")
        talk.hears("final_answer")
        talk.leaves()

    assert "not today" in study.model.requests[-1].body["messages"][-1]["content"]


def test_the_asker_cannot_approve_inside_the_conversation(
    redis_url: str, store: Store, tmp_path: Path
) -> None:
    study = Study(redis_url, store, tmp_path, ApprovalPolicy())
    study.will(call("move"), say("Moved."))
    with study.model, serving(redis_url, dispatcher=study.dispatcher) as api:
        study.cli.environment["BOYD_URL"] = api.url
        with talking(study) as talk:
            talk.types("Please?\r")
            talk.types("y\r", after="Approve?")
            talk.types("\r", after="Reason")
            talk.hears("someone else must approve it")
            study.lab.resolver.answer(study.waiting, "approved", person("bob"))
            study.resolve()
            talk.hears("final_answer")
            talk.leaves()


def test_only_new_conversations_take_options(study: Study) -> None:
    assert study.cli.result("chat", "abc", "--max-steps", "2").exit_code == 2
