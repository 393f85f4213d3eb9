"""Prompts that users of an assistant can choose, as commands of its menu."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MOST = 200


@dataclass(frozen=True)
class AssistantPrompt:
    """A prompt; *text* makes it from the arguments, which are all optional."""

    name: str
    description: str
    arguments: Mapping[str, str]
    text: Callable[[Mapping[str, str]], str]

    @property
    def info(self) -> dict[str, Any]:
        """Its definition for clients."""
        arguments = [{"name": name, "description": d} for name, d in self.arguments.items()]
        return {"name": self.name, "description": self.description, "arguments": arguments}

    def messages(self, given: Mapping[str, str]) -> dict[str, Any]:
        """The prompt for those arguments."""
        known = {name: text[:_MOST] for name, text in given.items() if name in self.arguments}
        content = {"type": "text", "text": self.text(known)}
        return {
            "description": self.description,
            "messages": [{"role": "user", "content": content}],
        }


def _report(given: Mapping[str, str]) -> str:
    who = f"the agent {given['agent']!r}" if given.get("agent") else "each agent"
    return (
        f"Report what {who} of Boyd has seen, decided and done since its last noteworthy iteration."
        " Use boyd_status, boyd_history and boyd_explain_iteration. Say what failed, and what is"
        " paused or frozen and by whom."
    )


def _waiting(given: Mapping[str, str]) -> str:
    who = f"agent {given['agent']!r}" if given.get("agent") else "each agent of boyd_status"
    return (
        f"List what waits for people in Boyd: use boyd_approvals_list for {who}. For each approval"
        " say what would be done to what, why, how risky it is, and until when. Do not advise to"
        " approve or deny; people decide on its page."
    )


_AGENT = {"agent": "Id of the agent; absent: all agents."}
PROMPTS: Sequence[AssistantPrompt] = (
    AssistantPrompt("boyd_report", "Report what agents did last.", _AGENT, _report),
    AssistantPrompt("boyd_waiting", "List what waits for people.", _AGENT, _waiting),
)
