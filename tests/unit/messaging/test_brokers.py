"""Messages spread over several brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from boyd.errors import ConfigError
from boyd.messaging.celery_app import make_app
from boyd.messaging.dispatcher import BatchHint, SpreadDispatcher
from boyd.models import Phase
from boyd.settings.process_settings import Settings
from boyd.text import queues
from boyd_cli import boyd
from boyd_worker.agent_host import AgentHost

AGENTS = [f"agent-{number}" for number in range(1000)]


def test_every_broker_has_a_fair_share_and_a_new_one_moves_no_others() -> None:
    before = {name: queues.broker_of(name, 3) for name in AGENTS}
    after = {name: queues.broker_of(name, 4) for name in AGENTS}

    assert all(250 < share < 420 for share in Counter(before.values()).values())
    moved = {name for name in AGENTS if after[name] != before[name]}
    assert {after[name] for name in moved} == {3}
    assert 180 < len(moved) < 320
    assert {queues.broker_of(name, 1) for name in AGENTS} == {0}


class Recording:
    """A dispatcher that notes for which agents it sends."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    def send(
        self, agent_id: str, iteration: int, epoch: int, phase: Phase, queue: str | None = None
    ) -> None:
        self.sent.append(("send", agent_id))

    def fan_out(self, agent_id: str, iteration: int, batches: Sequence[BatchHint]) -> None:
        self.sent.append(("fan_out", agent_id))

    def job(self, agent_id: str, name: str, attempt: int, queue: str | None) -> None:
        self.sent.append(("job", agent_id))


def test_all_messages_of_an_agent_go_to_its_broker() -> None:
    brokers = [Recording(), Recording(), Recording()]
    spread = SpreadDispatcher(brokers)
    for name in AGENTS[:20]:
        spread.send(name, 1, 1, "start")
        spread.fan_out(name, 1, [])
        spread.job(name, "call:1", 1, None)

    for position, broker in enumerate(brokers):
        own = [name for name in AGENTS[:20] if queues.broker_of(name, 3) == position]
        kinds = ("send", "fan_out", "job")
        assert broker.sent == [(kind, name) for name in own for kind in kinds]


def test_the_setting_has_the_brokers_in_order_and_hides_all_passwords() -> None:
    urls = " redis://one/0  rediss://u:hush@two/0\nsentinel://a:1,b:2/boyd "
    settings = Settings(broker_url=urls)

    assert settings.broker_urls == [
        "redis://one/0",
        "rediss://u:hush@two/0",
        "sentinel://a:1,b:2/boyd",
    ]
    assert Settings().broker_urls == []


def test_a_worker_of_one_broker_has_only_the_agents_there(tmp_path: Path) -> None:
    names = ("first", "second", "third")
    for name in names:
        text = f'id = "{name}"\n[[plugins]]\nuse = "example"\n'
        (tmp_path / f"{name}.toml").write_text(text)
    settings = Settings(
        redis_url="redis://127.0.0.1:1/0",
        broker_url="redis://127.0.0.1:2/0 redis://127.0.0.1:3/0",
        agents=tuple(str(tmp_path / f"{name}.toml") for name in names),
    )
    hosts = [AgentHost(settings, "worker", ["loop"], broker) for broker in (0, 1)]

    assert [sorted(host.agents) for host in hosts] == [
        [name for name in names if queues.broker_of(name, 2) == broker] for broker in (0, 1)
    ]
    assert [host.app.conf.broker_url for host in hosts] == [
        "redis://127.0.0.1:2/0",
        "redis://127.0.0.1:3/0",
    ]


def test_a_broker_that_is_not_among_them_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOYD_BROKER_URL", "redis://a redis://b")
    result = CliRunner().invoke(boyd, ["worker", "--broker", "3"])

    assert result.exit_code != 0
    assert "--broker 3: broker_url names only 2" in str(result.exception or result.output)


def test_an_option_of_a_broker_that_does_not_exist_is_refused_before_it_is_reached() -> None:
    with pytest.raises(ConfigError, match=r"^broker_url .* cannot be used: no option 'colour'$"):
        make_app("redis://127.0.0.1:1/0?colour=red")
