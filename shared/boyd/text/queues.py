"""Names of queues.

Every queue belongs to one agent. Plugins, settings and users use the short name; the broker uses
`boyd.<name>.<agent id>`.
"""

from __future__ import annotations

from hashlib import sha256

LOOP = "loop"
OBSERVE = "observe"
ACT = "act"
HOST = "host"
CALLBACK = "callback"
#: The queue for requests to models; consume it on hosts that can reach them.
THINK = "think"

#: Queues that a worker consumes by default; `host` stands for the queue of its own host.
DEFAULT = (LOOP, OBSERVE, ACT, HOST, CALLBACK, THINK)


def of_host(host: str) -> str:
    """The queue of the workers on *host*."""
    return f"{HOST}.{host}"


def full_name(queue: str, agent_id: str) -> str:
    """The name of a queue on the broker."""
    return f"boyd.{queue}.{agent_id}"


def broker_of(agent_id: str, brokers: int) -> int:
    """The position of the broker that has an agent's queues, among so many.

    The agent's highest rank decides, so a broker added at the end takes a fair share of the agents
    and moves no others.
    """

    def rank(position: int) -> bytes:
        return sha256(f"{position} {agent_id}".encode()).digest()

    return max(range(brokers), key=rank)


def no_worker_message(queue: str) -> str:
    """The message that a queue has no worker."""
    return f"No live worker consumes queue {queue!r}; start one with -Q {queue}"
