"""Every Redis key that Boyd uses; scripts build those with an id in `lua/lib/keys.lua`.

Keys of one agent share a hash tag, so that they lie in one slot of a Redis Cluster.
"""

from __future__ import annotations

#: The scope of the whole deployment; `*` is not a valid agent id.
DEPLOYMENT = "*"
AGENTS = "boyd:{*}:agents"
#: The time when each agent was registered, or a mark that it is retired.
REGISTERED = "boyd:{*}:agents:registered"
#: The freeze marks, by scope; each agent has a copy of those that concern it.
FREEZES = "boyd:{*}:frozen"
WORKERS = "boyd:{*}:workers"
WORKER_INFO = "boyd:{*}:workers:info"
#: The time when a process last joined; it grows with each.
WORKER_JOINED = "boyd:{*}:workers:joined"
API_KEYS = "boyd:{*}:keys"
#: Sorted set: the open sessions of the console, by their latest end.
SESSIONS = "boyd:{*}:sessions"
#: Hash: the readable names of principals, as a provider has told them.
PEOPLE = "boyd:{*}:people"
#: The state of the archive, as JSON.
ARCHIVE = "boyd:{*}:archive"
#: The state of the export of traces, as JSON.
TRACES = "boyd:{*}:traces"

#: The types of the keys that the whole deployment needs.
SHARED_TYPES = {
    AGENTS: "hash",
    REGISTERED: "hash",
    FREEZES: "hash",
    WORKERS: "zset",
    WORKER_INFO: "hash",
    WORKER_JOINED: "string",
    API_KEYS: "hash",
    SESSIONS: "zset",
    PEOPLE: "hash",
}


def bucket(key_id: str, purpose: str = "") -> str:
    """The rate limit of an API key, or its separate one for a *purpose*."""
    return f"boyd:{{*}}:bucket:{key_id}{purpose and ':'}{purpose}"


def session(digest: str) -> str:
    """A session of the console, by the digest of its secret."""
    return f"boyd:{{*}}:session:{digest}"


def login(digest: str) -> str:
    """A one-time login link, by the digest of its token."""
    return f"boyd:{{*}}:login:{digest}"


def answer(digest: str) -> str:
    """The answer to a request with an `Idempotency-Key`."""
    return f"boyd:{{*}}:answer:{digest}"


def storage_key(digest: str) -> str:
    """The use of the storage budget of a principal, by a digest of its name."""
    return f"boyd:{{*}}:stored:{digest}"


def throttle_key(digest: str) -> str:
    """String: the time when a process last acquired the throttle for periodic work."""
    return f"{WORKERS}:turn:sweep:{digest}"


class Keys:
    """The keys of one agent or of the deployment; scripts use the names of these attributes."""

    agents = AGENTS
    registered = REGISTERED
    workers = WORKERS
    worker_info = WORKER_INFO
    worker_joined = WORKER_JOINED
    api_keys = API_KEYS
    sessions = SESSIONS
    people = PEOPLE

    def __init__(self, agent_id: str) -> None:
        self.agent_id = agent_id
        self.prefix = f"boyd:{{{agent_id}}}:"
        #: Hash: the freeze marks by scope; an agent's copy has as `+` the server run it counts on.
        self.freezes = self.prefix + "frozen"
        #: Hashes: counter, last slot, last sweep, reason of a pause ...; the iteration in flight.
        self.loop = self.prefix + "loop"
        self.iteration = self.prefix + "iteration"
        #: Sorted set: the due members, by deadline. Set: the names of the open jobs.
        self.due = self.prefix + "due"
        self.jobs = self.prefix + "jobs"
        #: Stream: the last events.
        self.events = self.prefix + "events"
        #: Sorted sets: the ledger's entries by time of claim, and past iterations by end.
        self.executions = self.prefix + "executions"
        self.history = self.prefix + "history"
        #: Sorted set: the holds of actions, by end; those that a person has to lift come last.
        self.held_actions = self.prefix + "holds"
        #: What is wrong now, as JSON: plugin, text and resource of each symptom.
        self.symptoms = self.prefix + "symptoms"
        #: Hash: the executions in flight, by action and target.
        self.in_flight = self.prefix + "in-flight"
        #: Hashes by observer: the time of its last run, and its health as JSON.
        self.observers_ran = self.prefix + "observers:ran"
        self.observers_health = self.prefix + "observers:health"
        #: Sorted sets: procedures and runs by start, procedures that are stopped by the time they
        #: stopped, pending runs by urgency, finished ones by end.
        self.procedures = self.prefix + "procedures"
        self.procedures_stopped = self.prefix + "procedures:stopped"
        self.runs = self.prefix + "runs"
        self.runs_pending = self.prefix + "runs:pending"
        self.runs_finished = self.prefix + "runs:finished"
        #: Sorted set: all investigations, by creation.
        self.investigations = self.prefix + "investigations"
        #: Hash: running totals of the agent's model.
        self.usage = self.prefix + "usage"
        #: Sorted sets: pending items by deadline, resolved ones by time of resolution.
        self.approvals_pending = self.prefix + "approvals:pending"
        self.approvals_history = self.prefix + "approvals:history"
        #: Hash: fingerprint to pending item.
        self.approvals_fingerprints = self.prefix + "approvals:fingerprints"
        #: Hash: item to the strategy and observers that decide when it is withdrawn.
        self.approvals_clearing = self.prefix + "approvals:clearing"
        #: Streams: sealed and open audit entries. Hash: the end of the chain.
        self.audit = self.prefix + "audit"
        self.audit_open = self.prefix + "audit:open"
        self.audit_head = self.prefix + "audit:head"
        self._name_intake()

    def _name_intake(self) -> None:
        #: List: ids of the waiting observations, in order.
        self.intake = self.prefix + "intake"
        #: Hash: `of:<id>` an observation as JSON, `times:<id>` its count above 1, `next`, `bytes`.
        self.intake_waiting = self.prefix + "intake:waiting"
        #: Sorted set: recent events, by time of intake.
        self.intake_taken = self.prefix + "intake:taken"
        #: Recent beginnings and ends of alerts: a sorted set, by time of intake; a hash.
        self.intake_alerts = self.prefix + "intake:alerts"
        self.intake_latest = self.prefix + "intake:latest"

    @property
    def traces(self) -> str:
        """Hash: who exports traces, until when, and how far that has come."""
        return self.prefix + "traces"

    def of(self, kind: str, id: str) -> str:
        """The key of an object by kind and id; kinds are `run`, `approval`, `execution` ..."""
        return f"{self.prefix}{kind}:{id}"

    def past_iteration(self, iteration: int) -> str:
        """The record of a past iteration."""
        return self.of("iteration", str(iteration))

    def run(self, run_id: str) -> str:
        """One run."""
        return self.of("run", run_id)

    def approval(self, approval_id: str) -> str:
        """One approval."""
        return self.of("approval", approval_id)

    def job(self, name: str) -> str:
        """A job by its name, which is kind, colon and id."""
        return self.prefix + name

    def report(self, name: str) -> str:
        """The latest report of that name that was published, as JSON."""
        return self.prefix + name

    def log(self, investigation_id: str) -> str:
        """The log of an investigation."""
        return self.of("log", investigation_id)

    def request(self, request: str) -> str:
        """The outcome of a request, in case it is repeated."""
        return self.of("asked", request)

    def execution(self, execution_id: str) -> str:
        """One entry of the ledger."""
        return self.of("execution", execution_id)

    def budget(self, action_id: str, target: str) -> str:
        """The recent executions of an action on a target, for its budget."""
        return self.of("budget", f"{action_id}:{target}")

    def track(self, action_id: str) -> str:
        """The track records of an action, by class of situation."""
        return self.of("track", action_id)

    def hold(self, action_id: str, target: str) -> str:
        """The hold of an action on a target."""
        return self.of("hold", f"{action_id}:{target}")

    def state(self, plugin_id: str, key: str) -> str:
        """One value of a plugin's state."""
        return self.of("state", f"{plugin_id}:{key}")


class GraphKeys(Keys):
    """The keys of one graph of an agent."""

    def __init__(self, agent_id: str, name: str) -> None:
        super().__init__(agent_id)
        self.graph = f"graph:{name}"
        #: Hashes: confidence and source by fact; the revision; the number of facts by label.
        #: Sorted set: all subjects.
        self.facts = self.of(self.graph, "facts")
        self.meta = self.of(self.graph, "meta")
        self.labels = self.of(self.graph, "labels")
        self.subjects = self.of(self.graph, "subjects")

    def index(self, kind: str, label: str) -> str:
        """The index by subject (`out`), object (`into`), predicate (`by`) or `word`."""
        return self.of(f"{self.graph}:{kind}", label)
