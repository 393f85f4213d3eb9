"""`boyd agent repl`: runs cycles one by one, and shows everything in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from boyd.embedded.state_folder import private_folder
from boyd.errors import ApiUnavailable, BoydError, ConfigError
from boyd_cli import INTERRUPTED, output
from boyd_cli.terminal import open_prompt
from boyd_goals.api_models import Surroundings
from boyd_goals.cli import goal_views
from boyd_goals.cli.goals_client import GoalsClient, freeze_notice, next_cycle

#: Memories shown by `recall`, and entries of memory searched for symbols.
_TOP = 5
_RECENT = 100


class UsageError(Exception):
    """Raised for an incomplete or unknown command."""


@dataclass(frozen=True)
class ReplCommand:
    """A command of the REPL; *run* takes the text after its name.

    Attributes:
        arguments: as `help` shows them.
        about: its effect.
        values: completions of its first argument.
    """

    run: Callable[[str], None]
    arguments: str
    about: str
    values: Callable[[], Iterable[str]] | None = None


class Repl:
    """Runs commands from a terminal or a pipe."""

    def __init__(self, client: GoalsClient) -> None:
        self._client = client
        self._waits = goal_views.WaitingToolView(answer="answer {} TEXT")
        self._completions = _Completions(client)
        self.words = self._commands()
        self._others = {"s": "status", "q": "quit", "exit": "quit", "?": "help", "h": "help"}
        self._is_over = False

    def _commands(self) -> dict[str, ReplCommand]:
        client, views, completions = self._client, goal_views, self._completions

        def changing(verb: str) -> Callable[[str], None]:
            return lambda id: views.show_standing(client.change(verb, id))

        command = ReplCommand
        return {
            "status": command(self._status, "", "the session at a glance; also `s`"),
            "goals": command(lambda _: views.show_goals(client.goals()), "", "list all goals"),
            "add": command(
                lambda text: views.show_standing(client.ensure(text)), "DESCRIPTION", "add a goal"
            ),
            "suspend": command(changing("suspend"), "ID", "suspend a goal", completions.goals),
            "resume": command(changing("resume"), "ID", "resume a goal", completions.goals),
            "fail": command(changing("fail"), "ID", "mark a goal as failed", completions.goals),
            "priority": command(
                self._priority, "ID NUMBER", "change the priority of a goal", completions.goals
            ),
            "why": command(
                lambda id: views.show_why(client.why(id)),
                "ID",
                "decisions made for a goal",
                completions.goals,
            ),
            "memory": command(
                lambda _: views.show_memory(client.memory(_TOP)), "", "working memory, newest first"
            ),
            "recall": command(
                lambda query: views.show_episodes(client.recall(query, _TOP)),
                "QUERY",
                "memories about something",
            ),
            "graph": command(self._graph, "SYMBOL", "facts about a symbol", completions.symbols),
            "questions": command(
                lambda _: views.show_questions(client, client.questions()), "", "open questions"
            ),
            "answer": command(self._answer, "ID TEXT", "answer a question", completions.questions),
            "consolidate": command(
                lambda _: views.show_consolidated(client.consolidate()),
                "",
                "turn working memory into memories",
            ),
            "help": command(self._help, "", "this list"),
            "quit": command(self._quit, "", "leave; also `q`, `exit` and Ctrl-D"),
        }

    def run(self, state: Path) -> bool:
        """Run commands until the end of input; return whether all succeeded.

        On a terminal errors can be corrected, so they do not count. *state* is the folder for the
        history of commands.

        Raises:
            ApiUnavailable: the API does not answer, and nobody can retry.
            Exit: Ctrl-C without a terminal.
        """
        is_typed = output.can_ask()
        if is_typed:
            session = self._client.session()
            done = f"after cycle {session.cycle}" if session.cycle else "no cycles yet"
            output.say(f"Goals: {goal_views.counts(session)}; {done}.")
            output.say("Enter runs a cycle, `help` lists the commands, `q` quits.")
            self._waits.tell(session.questions, session.waiting)
        completer = _WordCompleter(self.words)
        lines = open_prompt(MARK, "`q` or Ctrl-D quits.", _history(state), completer)
        well = True
        while not self._is_over and (line := lines.question()) is not None:
            well &= self._try(line.strip())
            self._completions.forget()
        if is_typed:
            again = f"{output.to_type('agent resume')} or {output.to_type('agent repl')}"
            output.note(f"{again} continues from here.")
        return well or is_typed

    def _try(self, line: str) -> bool:
        """Run a line; return whether it succeeded."""
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
            output.note("A running cycle continues without this command.")
            if not output.can_ask():
                raise click.exceptions.Exit(INTERRUPTED) from None
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

    def _cycle(self) -> None:
        if not self._client.session().active:
            output.say("No goal is active: `add DESCRIPTION` adds one.")
            return
        done = next_cycle(self._client)
        goal_views.show_cycle(done)
        self._waits.tell(done.session.questions, done.approvals)
        if not done.result.success:
            raise BoydError("the iteration failed")
        if done.is_frozen:
            raise BoydError(freeze_notice(self._client.api, done.refusal or ""))
        if done.refusal:
            raise BoydError(done.refusal)

    def _status(self, _: str) -> None:
        session = self._client.session()
        goal_views.show_session(session)
        waits = goal_views.WaitingToolView(answer="answer {} TEXT")
        waits.tell(session.questions, session.waiting)

    def _priority(self, rest: str) -> None:
        id, _, number = rest.partition(" ")
        if not number.strip().isdecimal():
            raise UsageError("write `priority ID NUMBER`")
        goal_views.show_priority(self._client.prioritize(id, int(number)))

    def _graph(self, symbol: str) -> None:
        surroundings = self._client.about(symbol)
        self._completions.add_symbols(surroundings)
        goal_views.show_surroundings(surroundings)

    def _answer(self, rest: str) -> None:
        id, _, text = rest.partition(" ")
        if not text.strip():
            raise UsageError("write `answer ID TEXT`")
        goal_views.show_answered(self._client.answer(id, text.strip()))

    def _help(self, _: str) -> None:
        listed = self.words.items()
        pairs = [(f"{name} {word.arguments}".strip(), word.about) for name, word in listed]
        output.print_pairs(("Enter", "one cycle"), *pairs)

    def _quit(self, _: str) -> None:
        self._is_over = True


class _Completions:
    """Values for completion; cached until a command has run."""

    def __init__(self, client: GoalsClient) -> None:
        self._client = client
        self._seen: set[str] = set()
        self._asked: dict[str, list[str]] = {}

    def goals(self) -> Iterable[str]:
        return self._once("goals", lambda: [goal.id for goal in self._client.goals()])

    def questions(self) -> Iterable[str]:
        return self._once(
            "questions", lambda: [question.id for question in self._client.questions()]
        )

    def symbols(self) -> Iterable[str]:
        """The symbols in working memory and in the facts printed so far."""
        entries = self._once(
            "symbols",
            lambda: [name for entry in self._client.memory(_RECENT) for name in entry.symbols],
        )
        return {*entries, *self._seen}

    def add_symbols(self, surroundings: Surroundings) -> None:
        for fact in (*surroundings.out, *surroundings.into):
            self._seen |= {fact.subject, fact.object}

    def forget(self) -> None:
        self._asked.clear()

    def _once(self, name: str, find: Callable[[], list[str]]) -> list[str]:
        if name not in self._asked:
            self._asked[name] = find()
        return self._asked[name]


MARK = "boyd> "
#: The file with the history, in the state folder.
HISTORY = "repl-history"


class _WordCompleter(Completer):
    """Completes a command, then its first argument."""

    def __init__(self, words: Mapping[str, ReplCommand]) -> None:
        self._words = words

    def get_completions(self, document: Document, _: CompleteEvent) -> Iterator[Completion]:
        name, space, argument = document.text_before_cursor.lstrip().partition(" ")
        typed, candidates = (
            name,
            [f"{command} " if word.arguments else command for command, word in self._words.items()],
        )
        if space:
            word = self._words.get(name)
            typed = argument.lstrip()
            try:
                candidates = sorted(word.values()) if word is not None and word.values else []
            except BoydError:  # nobody answers, and nobody has asked for an error
                return
        for candidate in candidates:
            if candidate.startswith(typed) and candidate.isprintable():
                yield Completion(candidate, start_position=-len(typed))


def _history(state: Path) -> History:
    """The history of commands, in a private file, or in memory if that fails."""
    try:
        path = private_folder(state) / HISTORY
        path.touch(mode=0o600)
    except (ConfigError, OSError):
        return InMemoryHistory()
    return FileHistory(str(path))
