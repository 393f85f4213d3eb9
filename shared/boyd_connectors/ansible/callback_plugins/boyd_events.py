"""The callback that writes what a playbook does as JSON lines; Ansible's Python loads it.

Those of Ansible that write JSON are in a collection, need memory for whole results, or hide what
check mode left out.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ansible import context
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
    name: boyd_events
    type: stdout
    short_description: what a playbook does as JSON lines
    description: For Boyd.
"""
#: The most characters of a text, of all differences, of the facts of a host and of all lines.
MAX_TEXT, MAX_DIFFS, MAX_FACTS, MAX_LINES = 2_000, 100_000, 20_000, 4_000_000
_SETUP = ("setup", "ansible.builtin.setup", "ansible.legacy.setup")
_FACTS = (*_SETUP, "gather_facts", "ansible.builtin.gather_facts")
#: The error of a task that took too long, before releases had a field for it.
_LATE = "failed to execute in the expected time frame"
#: Errors of ssh before a task can have begun.
_NEVER_CONNECTED = (
    *("ssh: connect to host", "Could not resolve hostname"),
    *("Host key verification failed", "Permission denied (", "Connection timed out during banner"),
)


class CallbackModule(CallbackBase):  # type: ignore[misc] # Ansible has no annotations
    """Writes events to the file that `BOYD_ANSIBLE_EVENTS` names."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "boyd_events"

    def __init__(self) -> None:
        super().__init__()
        self._file = Path(os.environ["BOYD_ANSIBLE_EVENTS"]).open("a", encoding="utf-8")  # noqa: SIM115 - open as long as the process
        self._checks = bool(context.CLIARGS.get("check"))
        self._wants_facts = "BOYD_ANSIBLE_FACTS" in os.environ
        self._local = f"+++ after: {os.environ['ANSIBLE_LOCAL_TEMP']}"
        self._diffs, self._lines = MAX_DIFFS, MAX_LINES
        self._begun: set[str] = set()

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        """A host begins."""
        name = host.get_name()
        if name not in self._begun:
            self._begun.add(name)
            self._write({"event": "begun", "host": name})

    def v2_runner_on_ok(self, result: Any) -> None:
        """A task has ended well on a host."""
        outcome, action = result._result, result._task.action
        if self._wants_facts and action in _SETUP:
            self._facts(result)
        elif self._checks and result._task.check_mode is False and outcome.get("changed"):
            self._tell("ran", result)
        elif outcome.get("changed"):
            self._tell("changed", result, diff=self._difference(outcome))
        if self._checks and any(
            _is_left_out(item) for item in _items(outcome) if item.get("skipped")
        ):
            self._tell("left out", result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        """A task was skipped on a host."""
        if self._checks and any(_is_left_out(item) for item in _items(result._result)):
            self._tell("left out", result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """A task has failed on a host."""
        if not ignore_errors:
            error = _message(result._result)
            late = _LATE in error or any("timedout" in item for item in _items(result._result))
            self._tell("failed", result, error=error, late=late)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """A host cannot be reached."""
        error, task = _message(result._result), result._task
        never = not task.loop and any(text in error for text in _NEVER_CONNECTED)
        self._tell("unreachable", result, error=error, late=not never and task.action not in _FACTS)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """The playbook has ended."""
        hosts = {host: stats.summarize(host) for host in sorted(stats.processed)}
        self._lines = MAX_LINES
        self._write({"event": "ended", "hosts": hosts})

    def _facts(self, result: Any) -> None:
        facts = dict(result._result.get("ansible_facts", {}))
        facts.pop("discovered_interpreter_python", None)
        if len(json.dumps(facts, default=str)) > MAX_FACTS:
            facts = {
                name: value for name, value in facts.items() if isinstance(value, str | int | float)
            }
            facts = {"omitted": "there are too many", **dict(list(facts.items())[:100])}
        self._write({"event": "facts", "host": result._host.get_name(), "facts": facts})

    def _tell(self, event: str, result: Any, **more: Any) -> None:
        task = str(result._task.get_name())[:200]
        self._write({"event": event, "host": result._host.get_name(), "task": task, **more})

    def _difference(self, outcome: Any) -> str:
        diffs = [self._get_diff(item["diff"]) for item in _items(outcome) if item.get("diff")]
        lines = [line for diff in diffs if diff for line in str(diff).strip().splitlines()]
        # A file that Ansible wrote to compare with has another name each time.
        text = "\n".join("+++ after" if line.startswith(self._local) else line for line in lines)
        head = text[: min(MAX_TEXT, self._diffs)]
        self._diffs -= len(head)
        return head if head == text else f"{head}\n… {len(text) - len(head)} more characters"

    def _write(self, event: dict[str, Any]) -> None:
        line = json.dumps(event, default=str)
        self._lines -= len(line)
        if self._lines > 0:
            self._file.write(f"{line}\n")
            self._file.flush()


def _items(outcome: Any) -> list[Any]:
    """The result of each item of a loop, or the only one."""
    items = outcome.get("results")
    if isinstance(items, list) and items and all(isinstance(item, dict) for item in items):
        return items
    return [outcome]


def _is_left_out(skipped: Any) -> bool:
    """True if check mode skipped it, rather than a condition or an empty loop."""
    reasons = ("skip_reason", "skipped_reason", "false_condition")
    return not any(reason in skipped for reason in reasons)


def _message(outcome: Any) -> str:
    failed = next((item for item in _items(outcome) if item.get("failed")), outcome)
    parts = (failed.get(name) for name in ("msg", "stderr", "module_stderr", "censored"))
    text = "; ".join(str(part).strip() for part in parts if part)
    return text[-MAX_TEXT:] or "it has failed"
