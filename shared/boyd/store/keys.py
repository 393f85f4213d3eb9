"""Every Redis key that Boyd uses is built here, and nowhere else.

Keys of one agent share a hash tag, so that they lie in one slot of a Redis Cluster.
"""

from __future__ import annotations

#: What all workers of a deployment share; `*` can be no agent's id.
DEPLOYMENT = "*"
AGENTS = "boyd:{*}:agents"
#: When each agent was registered, or that it is retired.
REGISTERED = "boyd:{*}:agents:registered"
#: The freeze marks: of each agent by its id, and of all by `DEPLOYMENT`.
FREEZES = "boyd:{*}:frozen"
WORKERS = "boyd:{*}:workers"
WORKER_INFO = "boyd:{*}:workers:info"
API_KEYS = "boyd:{*}:keys"


def bucket(key_id: str, purpose: str = "") -> str:
    """How much of its allowance an API key has used, of that for a *purpose* if there is one."""
    return f"boyd:{{*}}:bucket:{key_id}{purpose and ':'}{purpose}"


def answer(digest: str) -> str:
    """The answer to a request that carried an `Idempotency-Key`."""
    return f"boyd:{{*}}:answer:{digest}"


def turn(kind: str, digest: str) -> str:
    """When one of several processes last did what any of them can do."""
    return f"{WORKERS}:turn:{kind}:{digest}"


class Keys:
    """The keys of one agent."""

    def __init__(self, agent_id: str) -> None:
        self.agent_id = agent_id
        self.prefix = f"boyd:{{{agent_id}}}:"
        self.loop = self.prefix + "loop"
        self.iteration = self.prefix + "iteration"
        self.due = self.prefix + "due"
        self.jobs = self.prefix + "jobs"
        self.events = self.prefix + "events"
        self.executions = self.prefix + "executions"
        self.execution_prefix = self.prefix + "execution:"
        self.history = self.prefix + "history"
        self.iterations = self.prefix + "iteration:"
        self.ran = self.prefix + "observers:ran"
        self.health = self.prefix + "observers:health"
        self.runs = self.prefix + "runs"
        self.runs_pending = self.prefix + "runs:pending"
        self.runs_finished = self.prefix + "runs:finished"
        self.run_prefix = self.prefix + "run:"
        self.investigations = self.prefix + "investigations"
        self.usage = self.prefix + "usage"
        self.intake = self.prefix + "intake"
        self.intake_waiting = self.prefix + "intake:waiting"
        self.intake_taken = self.prefix + "intake:taken"
        self.approvals_pending = self.prefix + "approvals:pending"
        self.approvals_history = self.prefix + "approvals:history"
        self.approvals_fingerprints = self.prefix + "approvals:fingerprints"
        self.approvals_clearing = self.prefix + "approvals:clearing"
        self.approval_prefix = self.prefix + "approval:"
        self.audit = self.prefix + "audit"
        self.audit_open = self.prefix + "audit:open"
        self.audit_head = self.prefix + "audit:head"

    def archived(self, iteration: int) -> str:
        """The record of a past iteration."""
        return f"{self.iterations}{iteration}"

    def run(self, run_id: str) -> str:
        """One run."""
        return self.run_prefix + run_id

    def approval(self, approval_id: str) -> str:
        """One approval."""
        return self.approval_prefix + approval_id

    def job(self, name: str) -> str:
        """An order by its name: its kind, as in `call`, a colon, and its id."""
        return self.prefix + name

    def log(self, investigation_id: str) -> str:
        """What was said and done in an investigation."""
        return f"{self.prefix}log:{investigation_id}"

    def graph(self, name: str) -> str:
        """What all keys of a graph begin with."""
        return f"{self.prefix}graph:{name}:"

    def asked(self, request: str) -> str:
        """What a request has led to, for when it comes again."""
        return f"{self.prefix}asked:{request}"

    def execution(self, execution_id: str) -> str:
        """One entry of the ledger."""
        return self.execution_prefix + execution_id

    def budget(self, action_id: str, target: str) -> str:
        """The recent executions of an action on a target."""
        return f"{self.prefix}budget:{action_id}:{target}"

    def state(self, plugin_id: str, key: str) -> str:
        """One value of a plugin's state."""
        return f"{self.prefix}state:{plugin_id}:{key}"
