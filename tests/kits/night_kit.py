"""A night on call: twelve agents, an Alertmanager, a mail server, a channel in Slack, people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from agents.pager import NAMES
from alertmanager_kit import Alertmanager, alertmanager
from boyd.models import Actor
from boyd_slack.slack_accounts import SlackAccount, SlackAccounts
from browser_kit import Console
from harness import Deployment, wait_until
from mail_kit import Mailbox, mail_server, parts_of
from slack_kit import (
    CHANNEL,
    PATH,
    SETTINGS,
    TOKEN,
    WORKSPACE,
    Slack,
    signature_headers,
    slack_server,
)

#: The Slack account of Mia.
MIA = SlackAccount(workspace=WORKSPACE, user="U0MIA")


@dataclass
class Night:
    """The parts of the night, and the acts of people apart from the console.

    Jane is told by mail at once and Lee if nobody has it; Mia reads the channel.
    """

    console: Console
    alerts: Alertmanager
    box: Mailbox
    slack: Slack

    def news(self, name: str, service: str) -> list[str]:
        """The news of a service for a person: the subjects of mails, or the texts of the thread."""
        subject = f"pager:restart on {service} "
        if name == "channel":
            titles = [reply["text"] for reply in self.slack.replies(subject)]
        else:
            titles = self.box.subjects(name, subject)
        return [title.partition(": pager:")[0] for title in titles]

    def hear(self, name: str, service: str, words: str) -> None:
        """Wait until a person hears that of a service."""
        wait_until(lambda: words in self.news(name, service))

    def headline(self, service: str) -> str:
        """The state of a service in the message of the channel; empty before that is there."""
        subject = f"pager:restart on {service} "
        if not any(subject in message["text"] for message in list(self.slack.messages.values())):
            return ""
        return str(self.slack.message(subject)["text"]).partition(": pager:")[0]

    def link(self, name: str, service: str) -> str:
        """The link in the last mail to a person about a service."""
        mails = [mail for mail in self.box.mails if f"on {service} " in mail["Subject"]]
        mail = [mail for mail in mails if f"{name}@example.com" in mail["To"]][-1]
        words = parts_of(mail)["text/plain"].split()
        return next(word for word in words if word.startswith(self.console.url))

    def mia(self, button: str, service: str) -> None:
        """Mia clicks a button of the message about a service, and confirms."""
        subject = f"pager:restart on {service} "
        self._interact(self.slack.click(button, MIA.user, name="mia", subject=subject))
        self._interact(self.slack.submission(MIA.user, name="mia"))

    def _interact(self, body: bytes) -> None:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        headers = {**form, **signature_headers(body)}
        address = f"{self.console.url}{PATH}"
        requests.post(address, data=body, headers=headers, timeout=60).raise_for_status()


@contextmanager
def night(deployment: Deployment, chromium: Any, folder: Path) -> Iterator[Night]:
    """Everything runs, and nothing has happened yet."""
    with mail_server() as box, slack_server() as slack:
        settings = {**SETTINGS, "url": slack.url}
        deployment.environment |= {
            f"BOYD_SLACK__{name.upper()}": value for name, value in settings.items()
        }
        console = Console(deployment, chromium)
        _link_account(deployment)
        groups = [
            {"name": "first", "recipients": [box.address_of("jane")]},
            {"name": "second", "recipients": [box.address_of("lee")], "default": False},
        ]
        escalations = [{"group": "second", "after": 8}]
        channel = {"name": "channel", "channel": CHANNEL}
        deployment.environment |= {
            "NOTIFIED": json.dumps({"groups": groups, "escalations": escalations}),
            "SLACK": json.dumps(
                {"token": {"env": "SLACK_TOKEN"}, "groups": [channel], "url": slack.url}
            ),
            "SLACK_TOKEN": TOKEN,
            "BOYD_API__URL": console.url,
        }
        agents = [part for name in NAMES for part in ("--agent", f"agents.pager:{name}")]
        deployment.start("worker", "worker", *agents)
        wait_until(lambda: len(deployment.store.fleet.agents()) == len(NAMES))
        key = deployment.key("alertmanager", "trigger", person=False)
        webhooks = {
            name: f"{console.url}/api/v0/agents/{name}/intake/alertmanager" for name in NAMES
        }
        text = key["Authorization"].removeprefix("Bearer ")
        with alertmanager(
            folder, webhooks["shop"], text, group_by=["..."], others=webhooks
        ) as alerts:
            yield Night(console, alerts, box, slack)


def _link_account(deployment: Deployment) -> None:
    """Give Mia a key, and link it with her account."""
    maker = Actor(principal="tests")
    keys = deployment.store.api_keys
    key, _ = keys.create("mia", "mia", ["read", "approvals"], by=maker, person=True)
    SlackAccounts(deployment.store).renew(MIA, key)
