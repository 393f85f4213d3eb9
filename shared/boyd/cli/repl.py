"""`boyd agent repl`: one cycle after the other, with a look at everything in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from boyd.cli import goal_views, output
from boyd.cli.chat_command import LinePrompt
from boyd.cli.cycle_runner import next_cycle
from boyd.cli.frozen_hint import frozen_line
from boyd.cli.goals_client import GoalsClient, to_type
from boyd.embedded.state_folder import private_folder
from boyd.errors import ApiUnavailable, BoydError, ConfigError
from boyd.plugins.goals.api_models import Surroundings

#: How many memories `recall` shows, and how many entries of memory are looked at for symbols.
_TOP = 5
_RECENT = 100


class UsageError(Exception):
    """What was typed is not complete, or no command."""


class InputSource(Protocol):
    """Where the commands come from."""

    def question(self) -> str | None:
        """The next line; None when there are no more."""


@dataclass(frozen=True)
class ReplCommand:
    """A command of the REPL; *run* takes what follows its name.

    Attributes:
        arguments: as `help` shows them.
        about: what it does.
        values: what its first argument may be.
    """

    run: Callable[[str], None]
    arguments: str
    about: str
    values: Callable[[], Iterable[str]] | None = None


class Repl:
    """Commands from a terminal or a pipe, and what comes of them."""

    def __init__(self, mind: GoalsClient) -> None:
        self._mind = mind
        self._waits = goal_views.WaitingToolView(answer="answer {} TEXT")
        self._known = Completions(mind)
        self.words: dict[str, ReplCommand] = {
            "status": ReplCommand(self._status, "", "the session at a glance; also `s`"),
            "goals": ReplCommand(self._goals, "", "all goals"),
            "add": ReplCommand(self._add, "DESCRIPTION", "a new goal"),
            "suspend": ReplCommand(self._suspend, "ID", "let a goal rest", self._known.goals),
            "resume": ReplCommand(self._resume, "ID", "take a goal up again", self._known.goals),
            "fail": ReplCommand(self._fail, "ID", "give a goal up", self._known.goals),
            "priority": ReplCommand(
                self._priority, "ID NUMBER", "how important it is", self._known.goals
            ),
            "why": ReplCommand(self._why, "ID", "what was decided for a goal", self._known.goals),
            "memory": ReplCommand(self._memory, "", "what is on its mind, the newest first"),
            "recall": ReplCommand(self._recall, "QUERY", "what is remembered about something"),
            "graph": ReplCommand(
                self._graph, "SYMBOL", "what is known about it", self._known.symbols
            ),
            "questions": ReplCommand(self._questions, "", "what waits for an answer"),
            "answer": ReplCommand(
                self._answer, "ID TEXT", "answer a question", self._known.questions
            ),
            "consolidate": ReplCommand(
                self._consolidate, "", "make memories of what is on its mind"
            ),
            "help": ReplCommand(self._help, "", "this list"),
            "quit": ReplCommand(self._quit, "", "leave; also `q`, `exit` and Ctrl-D"),
        }
        self._others = {"s": "status", "q": "quit", "exit": "quit", "?": "help", "h": "help"}
        self._left = False

    def run(self, state: Path) -> bool:
        """Do what is typed until there is no more; whether all of it went well.

        On a terminal a mistake can be mended, so that everything did. *state* is the folder that
        keeps what was typed there.

        Raises:
            ApiUnavailable: nobody answers, and nobody is there who could try again.
            Exit: Ctrl-C, where nobody types.
        """
        is_typed = output.can_ask()
        if is_typed:
            self._greet()
        lines = new_input_source(self.words, state)
        well = True
        while not self._left and (line := lines.question()) is not None:
            well &= self._does(line.strip())
            self._known.forget()
        if is_typed:
            output.note(f"{to_type('agent resume')} or {to_type('agent repl')} goes on from here.")
        return well or is_typed

    def _does(self, line: str) -> bool:
        """Do a line; whether it went well."""
        try:
            self._do(line)
        except UsageError as error:
            output.note(f"boyd: {error}")
            return False
        except BoydError as error:
            if isinstance(error, ApiUnavailable) and not output.can_ask():
                raise
            output.note(f"boyd: {output.one_line(str(error))}")
            return False
        except KeyboardInterrupt:
            output.note("A cycle that has begun goes on without this command.")
            if not output.can_ask():
                raise click.exceptions.Exit(output.INTERRUPTED) from None
        return True

    def _do(self, line: str) -> None:
        if not line:
            self._cycle()
            return
        name, _, rest = line.partition(" ")
        name = self._others.get(name.lower(), name.lower())
        word = self.words.get(name)
        if word is None:
            raise UsageError(f"no command {output.one_line(name)!r}; `help` lists them")
        rest = rest.strip()
        if word.arguments and not rest:
            raise UsageError(f"write `{name} {word.arguments}`")
        word.run(rest)

    def _greet(self) -> None:
        session = self._mind.session()
        begun = f"after cycle {session.cycle}" if session.cycle else "nothing was done yet"
        output.say(f"Goals: {goal_views.counts(session)}; {begun}.")
        output.say("Enter does a cycle, `help` lists the commands, `q` leaves.")
        self._waits.tell(session.questions, session.waiting)

    def _cycle(self) -> None:
        if not self._mind.session().active:
            output.say("No goal is active: `add DESCRIPTION` adds one.")
            return
        done = next_cycle(self._mind)
        goal_views.show_cycle(done)
        self._waits.tell(done.session.questions, done.approvals)
        if not done.result.success:
            raise BoydError("the iteration has failed")
        if done.is_frozen:
            raise BoydError(frozen_line(self._mind.api, done.refusal or ""))
        if done.refusal:
            raise BoydError(done.refusal)

    def _status(self, _: str) -> None:
        session = self._mind.session()
        goal_views.show_session(session)
        waits = goal_views.WaitingToolView(answer="answer {} TEXT")
        waits.tell(session.questions, session.waiting)

    def _goals(self, _: str) -> None:
        goal_views.show_goals(self._mind.goals())

    def _add(self, description: str) -> None:
        output.say(goal_views.standing_line(self._mind.wanted(description)))

    def _suspend(self, id: str) -> None:
        output.say(goal_views.standing_line(self._mind.suspend(id)))

    def _resume(self, id: str) -> None:
        output.say(goal_views.standing_line(self._mind.resume(id)))

    def _fail(self, id: str) -> None:
        output.say(goal_views.standing_line(self._mind.fail(id)))

    def _priority(self, rest: str) -> None:
        id, _, number = rest.partition(" ")
        if not number.strip().isdecimal():
            raise UsageError("write `priority ID NUMBER`")
        changed = self._mind.prioritize(id, int(number))
        output.say(output.one_line(f"goal {changed.id} has priority {changed.priority}"))

    def _memory(self, _: str) -> None:
        goal_views.show_memory(self._mind.memory(_TOP))

    def _why(self, id: str) -> None:
        goal_views.show_why(self._mind.why(id))

    def _recall(self, query: str) -> None:
        goal_views.show_episodes(self._mind.recall(query, _TOP))

    def _graph(self, symbol: str) -> None:
        found = self._mind.about(symbol)
        self._known.seen(found)
        goal_views.show_surroundings(found)

    def _questions(self, _: str) -> None:
        goal_views.show_questions(self._mind, self._mind.questions())

    def _answer(self, rest: str) -> None:
        id, _, text = rest.partition(" ")
        if not text.strip():
            raise UsageError("write `answer ID TEXT`")
        answered = self._mind.answer(id, text.strip())
        output.say(f"question {output.one_line(answered.id)} is answered")

    def _consolidate(self, _: str) -> None:
        output.say(goal_views.consolidated_line(self._mind.consolidate()))

    def _help(self, _: str) -> None:
        listed = self.words.items()
        pairs = [(f"{name} {word.arguments}".strip(), word.about) for name, word in listed]
        output.print_pairs([("Enter", "one cycle"), *pairs])

    def _quit(self, _: str) -> None:
        self._left = True


class Completions:
    """What can be completed; asked for when it is needed, once until something is done."""

    def __init__(self, mind: GoalsClient) -> None:
        self._mind = mind
        self._seen: set[str] = set()
        self._asked: dict[str, list[str]] = {}

    def goals(self) -> Iterable[str]:
        """The ids of goals."""
        return self._once("goals", lambda: [one.id for one in self._mind.goals()])

    def questions(self) -> Iterable[str]:
        """The ids of questions."""
        return self._once("questions", lambda: [one.id for one in self._mind.questions()])

    def symbols(self) -> Iterable[str]:
        """What is on the agent's mind, and what was shown."""
        entries = self._once(
            "symbols",
            lambda: [name for one in self._mind.memory(_RECENT) for name in one.symbols],
        )
        return {*entries, *self._seen}

    def seen(self, found: Surroundings) -> None:
        """These facts were shown."""
        for fact in (*found.out, *found.into):
            self._seen |= {fact.subject, fact.object}

    def forget(self) -> None:
        """Something was done: ask again."""
        self._asked.clear()

    def _once(self, name: str, find: Callable[[], list[str]]) -> list[str]:
        if name not in self._asked:
            self._asked[name] = find()
        return self._asked[name]


MARK = "boyd> "
#: Where what was typed is kept, in the state folder.
HISTORY = "repl-history"


def new_input_source(words: Mapping[str, ReplCommand], state: Path) -> InputSource:
    """What fits where this runs."""
    return TerminalLines(words, state) if output.can_ask() else LinePrompt()


class TerminalLines:
    """A prompt that can be edited; Tab completes, the arrow keys call back what was typed."""

    def __init__(self, words: Mapping[str, ReplCommand], state: Path) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=_history(state),
            completer=WordCompleter(words),
            complete_while_typing=False,
            complete_in_thread=True,
        )

    def question(self) -> str | None:
        """The next line; Ctrl-C forgets it, Ctrl-D ends."""
        while True:
            try:
                return self._session.prompt(MARK)
            except KeyboardInterrupt:
                output.note("`q` or Ctrl-D leaves.")
            except EOFError:
                return None


class WordCompleter(Completer):
    """Completes the command, and then what its first argument may be."""

    def __init__(self, words: Mapping[str, ReplCommand]) -> None:
        self._words = words

    def get_completions(self, document: Document, _: CompleteEvent) -> Iterator[Completion]:
        """All that the text before the cursor may become."""
        name, space, begun = document.text_before_cursor.lstrip().partition(" ")
        if not space:
            listed = self._words.items()
            yield from _fitting(
                name, [f"{one} " if word.arguments else one for one, word in listed]
            )
            return
        word = self._words.get(name)
        if word is not None and word.values is not None:
            try:
                known = sorted(word.values())
            except BoydError:  # nobody answers, and nobody has asked for an error
                return
            yield from _fitting(begun.lstrip(), known)


def _fitting(begun: str, known: Iterable[str]) -> Iterator[Completion]:
    """What begins so, unless it has what a terminal would obey."""
    for one in known:
        if one.startswith(begun) and one.isprintable():
            yield Completion(one, start_position=-len(begun))


def _history(state: Path) -> History:
    """What was typed before, in a file that only its owner may read; in memory where it cannot."""
    try:
        path = private_folder(state) / HISTORY
        path.touch(mode=0o600)
    except (ConfigError, OSError):
        return InMemoryHistory()
    return FileHistory(str(path))
