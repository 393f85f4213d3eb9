"""Parts that plugins share: bounded calls, results of actions, prompts with playbooks."""

from __future__ import annotations

import difflib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import yaml
from pydantic import Field

from boyd.errors import ConfigError
from boyd.models import ActionResult, JsonObject, Observation
from boyd.plugin import Context, Plugin

if TYPE_CHECKING:
    from boyd.llm.playbook import Playbook


_T = TypeVar("_T")


class Hangs(Exception):
    """A call has not returned in time."""


class StillHangs(Hangs):
    """An earlier call of that name has not returned yet."""


@dataclass(frozen=True)
class BoundedCall(Generic[_T]):
    """A function, and the seconds in which it should return."""

    function: Callable[[], _T]
    seconds: float


class _Running(Generic[_T]):
    """A call in a thread of its own."""

    def __init__(self, name: str, call: BoundedCall[_T]) -> None:
        self._call = call
        self._outcome: list[_T | Exception] = []
        self._deadline = time.monotonic() + call.seconds
        self.thread = threading.Thread(target=self._run, name=f"bounded {name}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._outcome.append(self._call.function())
        except Exception as error:  # noqa: BLE001 - an outcome like any other
            self._outcome.append(error)

    def wait(self) -> _T | Exception:
        """The answer or the error, when it is there or the time is over."""
        self.thread.join(max(0.0, self._deadline - time.monotonic()))
        if self._outcome:
            return self._outcome[0]
        return Hangs(f"no answer within {self._call.seconds:g} s")


class BoundedCalls:
    """Makes calls side by side, each within its own time.

    Python cannot stop a thread. A call that hangs, such as one to a dead NFS server, keeps its
    thread; the next call of that name fails at once until that thread has ended, so there is never
    more than one of it.
    """

    def __init__(self) -> None:
        self._hanging: dict[str, threading.Thread] = {}

    def make(self, calls: Mapping[str, BoundedCall[_T]]) -> dict[str, _T | Exception]:
        """The answer of each call, or its error; `Hangs` for one that does not return."""
        running = {name: _Running(name, call) for name, call in calls.items() if self._free(name)}
        outcomes: dict[str, _T | Exception] = {}
        for name in calls:
            if name not in running:
                outcomes[name] = StillHangs("the previous call still hangs")
                continue
            outcomes[name] = running[name].wait()
            if isinstance(outcomes[name], Hangs):
                self._hanging[name] = running[name].thread
        return outcomes

    def _free(self, name: str) -> bool:
        thread = self._hanging.get(name)
        return thread is None or not thread.is_alive()


#: The most lines of a difference.
MAX_LINES = 400


def difference(
    before: Mapping[str, Any] | str,
    after: Mapping[str, Any] | str,
    subject: str,
    names: tuple[str, str] = ("now", "then"),
) -> str:
    """The lines of *subject* that would change, as a unified diff; values are written as YAML.

    Empty if nothing would change. *names* are those of the two states.
    """
    first, second = (f"{subject} {name}" for name in names)
    diff = difflib.unified_diff(_lines(before), _lines(after), first, second, lineterm="", n=2)
    lines = list(diff)
    cut = len(lines) - MAX_LINES
    if cut > 0:
        lines = [*lines[:MAX_LINES], f"… and {cut} more lines"]
    return "\n".join(lines)


def _lines(value: Mapping[str, Any] | str) -> list[str]:
    if not isinstance(value, str):
        value = yaml.safe_dump(dict(value), sort_keys=True, allow_unicode=True) if value else ""
    return value.splitlines()


def uncertain(reason: Exception | str, output: JsonObject | None = None) -> ActionResult:
    """A result with an unknown outcome, which `verify` may still clear up by the *output*."""
    error = f"{reason}; it may have taken effect"
    return ActionResult(
        action="", success=False, duration=0, error=error, unknown=True, output=output
    )


#: The most characters of all playbooks in a prompt.
LIMIT = 12_000

_INTRO = """\
Playbooks written by the operators of these systems for similar situations. They may not apply:
verify their statements before you rely on them."""


class PlaybookReader(Plugin):
    """Reads playbooks from a folder and from other plugins."""

    needs_llm = True

    class Options(Plugin.Options):
        """Options about the prompt.

        Attributes:
            instructions: additional instructions for the model.
            enable_playbooks: include matching playbooks in the instructions.
            playbooks: the folder of the playbooks.
        """

        instructions: str = Field(default="", max_length=20_000)
        enable_playbooks: bool = True
        playbooks: Path | None = None

    options: Options

    def init(self, ctx: Context) -> None:
        """Log playbooks that cannot be read."""
        self._load(ctx)

    def playbook_section(
        self, observations: Sequence[Observation], phase: Literal["orient", "decide"], ctx: Context
    ) -> str:
        """The prompt section with the matching playbooks; empty without any."""
        playbooks = self._load(ctx)
        if not playbooks:
            return ""
        from boyd.llm.playbook import match, section

        fit = match(playbooks, observations, phase)
        return f"{_INTRO}\n\n{section(fit, LIMIT)}" if fit else ""

    def _load(self, ctx: Context) -> list[Playbook]:
        """The playbooks of the folder and of plugins; unreadable ones are logged and skipped."""
        if not self.options.enable_playbooks:
            return []
        # Imported late: agents without playbooks do not need the model loop.
        from boyd.llm.playbook import load_folder, parse

        folder = self.options.playbooks
        playbooks, warnings = load_folder(folder) if folder else ([], [])
        ids = {playbook.id for playbook in playbooks}
        for plugin_id, texts in ctx.playbooks().items():
            for number, text in enumerate(texts, 1):
                try:
                    playbook = parse(text, f"{plugin_id}-{number}.md")
                except ConfigError as error:
                    warnings.append(str(error))
                    continue
                if playbook.id not in ids:
                    ids.add(playbook.id)
                    playbooks.append(playbook)
        for warning in warnings:
            ctx.logger.warning("playbook skipped: %s", warning)
        return playbooks
