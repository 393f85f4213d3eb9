"""Calls every command of `boyd` in the deployment of the guide."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boyd.models import Actor
from boyd.security.links import LinkSigner
from boyd_slack.slack_accounts import SlackAccount, SlackAccounts
from cli_kit import PATIENCE, leaves
from harness import PYTHONPATH, nursery
from mcp_kit import Rogue
from production_kit import ROOT, Site
from route_kit import Known

SHIPPED = ROOT / "deploy" / "agent" / "agent.toml"

#: Not called here, but a process of the deployment; `up` and `demo` are deployments of their own.
PROCESS = "(a process)"
#: Each command with what follows it, and after `<` what it reads; several lines are several calls.
COMMANDS = {
    "demo": PROCESS,
    "up": PROCESS,
    "open": "--print",
    "status": "",
    "history": "\n1\n--since yesterday --host nowhere --search a",
    "incidents": "web --since yesterday\nweb -o markdown\nweb {known.incident}",
    "agents": "\n--retired",
    "observers": "",
    "events": "",
    "ask": "'Why is it?'",
    "chat": "< Why is it?",
    "investigations cancel": "{known.open_investigation}",
    "investigations follow": "{known.investigation}",
    "investigations list": "",
    "investigations show": "{known.investigation}",
    "agent consolidate": "--agent control",
    "agent cycle": "--agent control --goal 'Find mammals'",
    "agent episodes": "--agent control",
    "agent memory": "--agent control",
    "agent psyche": "--agent control",
    "agent recall": "--agent control --query mammals",
    "agent reopen": "--agent control {known.session}",
    "agent repl": "--agent control < goals",
    "agent resume": "--agent control --max-cycles 1",
    "agent run": "--agent control --goals 'Find whales' --max-cycles 1",
    "agent sessions": "--agent control",
    "goals add": "--agent control 'Find cats' --criteria cats",
    "goals fail": "--agent control {known.goal}",
    "goals list": "--agent control",
    "goals priority": "--agent control {known.goal} 9",
    "goals resume": "--agent control {known.suspended_goal}",
    "goals show": "--agent control {known.goal}",
    "goals suspend": "--agent control {known.goal}",
    "goals why": "--agent control {known.goal}",
    "questions answer": "--agent control {known.question} 'It lives in the sea.'",
    "questions list": "--agent control",
    "graph export": "--agent control",
    "graph import": "--agent control - < @prefix : <http://example.org/> . :Whale :is-a :Mammal .",
    "graph search": "--agent control whale",
    "graph show": "--agent control Whale",
    "trigger": "--wait",
    "slack list": "--redis",
    "slack unlink": "--redis {known.slack_account}",
    "runs cancel": "{known.waiting_run}",
    "runs list": "",
    "runs redeliver": "{known.run}",
    "runs show": "{known.run}",
    "runs submit": "look",
    "runs wait": "{known.ended_run}",
    "actions cancel": "{known.queued_execution}",
    "actions dry-run": "counter:add",
    "actions executions": "\n--since yesterday",
    "actions holds": "",
    "actions lift": "{known.action_on_hold}",
    "actions list": "",
    "actions rollback": "{known.execution}",
    "actions run": "counter:add",
    "actions show": "counter:add",
    "autonomy list": "",
    "autonomy revoke": "{known.free_action}",
    "procedures cancel": "{known.procedure}",
    "procedures list": "\n--agent stepped",
    "procedures resume": "{known.procedure}",
    "procedures show": "{known.procedure}",
    "approvals approve": "{known.approval} --yes --reason fine",
    "approvals deny": "{known.approval} --yes",
    "approvals list": "\n--all",
    "approvals show": "{known.approval}",
    "approvals withdraw": "{known.approval} --yes",
    "ack": "\n{known.approval} --reason mine\n{known.anomaly} --for 30m\n{known.anomaly} --release",
    "pause": "--reason pause",
    "resume": "",
    "freeze": "\n--all --redis --reason maintenance",
    "unfreeze": "\n--all --redis",
    "revoke": "",
    "restore": "",
    "retire": "--agent {known.leaving} --yes",
    "abandon": "--agent {known.leaving}",
    "audit export": "",
    "audit show": "\n--deployment --redis",
    "audit verify": "--all\n--all --redis",
    "intake list": "",
    "intake try": f"{ROOT}/tests/data/intake/github/firing.json",
    "can": "me run counter:add",
    "keys create": "eve --principal eve --scope read\neve --principal eve --scope read --redis",
    "keys list": "\n--redis",
    "keys revoke": "{known.key}",
    "keys rotate": "{known.key} --revoke",
    "init": "{folder}/first",
    "plugins list": "",
    "plugins new": "clocks --folder {folder}",
    "plugins show": "goals",
    "check": "",
    "mcp list": "{known.mcp_agent}",
    "mcp sync": "{known.mcp_agent}",
    "observe": f"{SHIPPED} host-metrics:measure",
    "replay": f"--agent {SHIPPED} --publish",
    "prove": f"--agent {SHIPPED} --labels {{known.labels}} --publish",
    "cases add": "1 --name again --folder {known.cases}",
    "test": "agents.routed:routed --folder {known.cases}",
    "doctor": "",
    "upgrade": "--check",
    "archive": PROCESS,
    "traces": PROCESS,
    "completion": "bash",
    "api": PROCESS,
    "beat": PROCESS,
    "worker": PROCESS,
}
#: Those that need Redis, and the user that the guide gives to whoever calls them.
USERS = {
    "check": "worker",
    "doctor": "metrics",
    "upgrade": "metrics",
    "observe": "worker",
    "replay": "worker",
}
USERS |= {"test": "worker", "prove": "worker"}


_TOOLS = """
id = "tools"
[[plugins]]
use = "mcp"
[plugins.options.servers.rogue]
argv = {argv}
"""


def commands() -> Iterator[str]:
    """Every command that there is."""
    for path, _ in leaves():
        yield " ".join(path)


@dataclass(frozen=True)
class Done:
    """The exit status and output of a command."""

    status: int
    out: str
    errors: str


class Things(Known):
    """Also what only commands can name."""

    def __init__(self, site: Site, folder: Path) -> None:
        super().__init__(site.ask, site.running)
        self._site = site
        self.folder = folder

    def call(self, command: str, line: str) -> Done:
        """Run a command as a process, in the way of the guide."""
        arguments, _, stdin = f" {line}".partition(" < ")
        words = [*command.split(), *shlex.split(arguments)]
        user = "api" if "--redis" in words else USERS.get(command, "")
        around = self._site.running.as_user(user) if user else self._of_the_api
        (self.folder / "in").write_text(f"{stdin}\n")
        with (
            (self.folder / "in").open("rb") as read,
            (self.folder / "out").open("wb") as out,
            (self.folder / "errors").open("wb") as errors,
        ):
            environment = {**os.environ, **self._own, **around}
            process = nursery().start(
                words, environment, out.fileno(), errors.fileno(), read.fileno()
            )
            status = process.wait(PATIENCE)
        return Done(status, (self.folder / "out").read_text(), (self.folder / "errors").read_text())

    def json(self, command: str, line: str) -> Any:
        """The JSON document that a command prints."""
        done = self.call(command, f"{line} -o json")
        assert done.status == 0, done
        return json.loads(done.out)

    @property
    def ended_run(self) -> str:
        return str(self.json("runs submit", "look --wait")["id"])

    @property
    def goal(self) -> str:
        return str(self.json("goals add", "--agent control whale")["id"])

    @property
    def suspended_goal(self) -> str:
        goal = self.goal
        assert self.call("goals suspend", f"--agent control {goal}").status == 0
        return goal

    @property
    def session(self) -> str:
        """An older session of goals."""
        self.call("agent run", "--agent control --fresh --goals cat --max-cycles 1")
        return str(self.json("agent sessions", "--agent control")[-1]["id"])

    @property
    def question(self) -> str:
        """The id of a question that a goal has asked."""
        asking = "ask the user a question: confirm the answer of a human person"
        criteria = "--criteria 'unicorn habitat and dragon nests' --priority 255"
        self.json("goals add", f"--agent control '{asking}' {criteria}")
        self.call("agent run", "--agent control --max-cycles 8")
        return str(self.json("questions list", "--agent control")[-1]["id"])

    @property
    def leaving(self) -> str:
        """An agent that nothing runs any more."""
        return self._site.leave()

    @property
    def cases(self) -> Path:
        """A folder with a case."""
        folder = self.folder / "cases"
        if not folder.exists():
            assert self.call("cases add", f"1 --folder {folder}").status == 0
        return folder

    @property
    def labels(self) -> Path:
        """A file of labels for `boyd prove`."""
        path = self.folder / "labels.csv"
        path.write_text("start,end\n2026-01-05T12:00:00Z,2026-01-05T13:00:00Z\n")
        return path

    @property
    def sign_in_link(self) -> str:
        """The path of a link that signs in."""
        link = self.call("open", "--print").out.strip()
        assert link.startswith(f"{self._site.ask.base}/console/open/"), link
        return link.removeprefix(self._site.ask.base)

    @property
    def answer_token(self) -> str:
        """The token in Jane's link to an approval."""
        item = self._site.running.agent("routed").approvals.get(self.approval)
        assert item is not None
        secret = (self._site.running.guarded.secrets / "approval-secret").read_text().strip()
        jane = Actor(principal="mail:jane@example.com")
        return LinkSigner(secret).sign(item, jane, self._site.running.store.clock.now())

    @property
    def slack_token(self) -> str:
        """The token of a page that links a Slack account."""
        account = SlackAccount(workspace="T0123ABCD", user="U0ALICE", name="alice")
        return SlackAccounts(self._site.running.store).offer(account)

    @property
    def slack_account(self) -> str:
        """A linked Slack account."""
        account = SlackAccount(workspace="T0123ABCD", user="U0BOB", name="bob")
        store = self._site.running.store
        SlackAccounts(store).renew(account, store.api_keys.all()[0])
        return account.id

    @property
    def mcp_agent(self) -> Path:
        """An agent file that names a server of tools, which are locked."""
        server = Rogue(self.folder).options
        file = self.folder / "tools.toml"
        file.write_text(_TOOLS.format(argv=json.dumps(server["argv"])))
        done = self.call("mcp sync", str(file))
        assert done.status == 0, done
        return file

    @property
    def _own(self) -> dict[str, str]:
        """The environment of all commands."""
        return {
            "BOYD_STATE_DIR": str(self.folder / "state"),
            "XDG_CONFIG_HOME": str(self.folder),
            "PYTHONPATH": PYTHONPATH,
        }

    @property
    def _of_the_api(self) -> dict[str, str]:
        """The environment of a user who can reach only the API."""
        ask = self._site.ask
        return {
            "BOYD_URL": ask.base,
            "BOYD_API_KEY": ask.headers["bob"]["Authorization"].removeprefix("Bearer "),
            "BOYD_AGENT": "routed",
            "REQUESTS_CA_BUNDLE": str(ask.verify),
        }
