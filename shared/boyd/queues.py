"""Names of queues. Every queue belongs to one agent: `boyd.<name>.<agent id>` (L1).

Plugins, settings and people use the short name; only the broker uses the whole one.
"""

from __future__ import annotations

LOOP = "loop"
OBSERVE = "observe"
ACT = "act"
HOST = "host"
CALLBACK = "callback"
#: Where the turns of models are taken; put it on the hosts that may reach them.
THINK = "think"

#: What a worker consumes unless told otherwise; `host` is the queue of its own host.
DEFAULT = (LOOP, OBSERVE, ACT, HOST, CALLBACK, THINK)


def of_host(host: str) -> str:
    """The queue that only workers on *host* consume."""
    return f"{HOST}.{host}"


def full_name(queue: str, agent_id: str) -> str:
    """A queue's name on the broker."""
    return f"boyd.{queue}.{agent_id}"


def unserved(queue: str) -> str:
    """Says that a queue has no worker, and which one to start."""
    return f"No live worker consumes queue {queue!r}; start one with -Q {queue}"
