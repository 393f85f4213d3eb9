"""The client of a cluster: where commands go, and what is repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import pytest
import redis
from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, TryAgainError

from boyd.errors import ConfigError, StoreUnavailable
from boyd.messaging.celery_app import make_app
from boyd.store import connect, translate_errors
from boyd.store.keys import Keys
from boyd.store.server.cluster_client import ClusterClient, slot_of
from boyd.store.server.connection import replies_of_some
from boyd.store.server.slot_map import Place, SlotMap

A, B = ("a", 1), ("b", 1)
KEY = Keys("agent").loop
SLOT = key_slot(KEY.encode())
HALF = 8192
#: The servers with the slot of `KEY`, and with the others.
HERE, THERE = (A, B) if SLOT < HALF else (B, A)
ELSEWHERE = next(
    Keys(f"agent{n}").loop
    for n in range(20)
    if (key_slot(Keys(f"agent{n}").loop.encode()) < HALF) != (SLOT < HALF)
)


class Node:
    """A server: what it was asked, and what it replies."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.asked: list[tuple[Any, ...]] = []
        self.reply: Callable[..., Any] = lambda *args: f"{place[0]}: {args[0]}"
        self.connection_pool = self
        self._waiting: list[tuple[Any, ...]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        """Nothing is open."""

    def ping(self) -> bool:
        """It is there again."""
        return True

    def execute_command(self, *args: Any, **_: Any) -> Any:
        """One command."""
        self.asked.append(args)
        return self.reply(*args)

    def pipeline(self, transaction: bool = True) -> Any:
        """Commands together."""
        node, queued = self, list[tuple[Any, ...]]()

        class Pipe:
            def execute_command(self, *args: Any, **_: Any) -> None:
                queued.append(args)

            def execute(self) -> list[Any]:
                return [node.execute_command(*args) for args in queued]

        return Pipe()

    def get_connection(self) -> Node:
        """A connection of its own."""
        return self

    def release(self, connection: Node) -> None:
        """The connection is free."""

    def disconnect(self) -> None:
        """The connection is closed."""
        self._waiting.clear()

    def pack_commands(self, commands: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """The packed commands."""
        return commands

    def send_packed_command(self, commands: list[tuple[Any, ...]]) -> None:
        """Take them."""
        self._waiting += commands

    def parse_response(self, connection: Node, name: str, **_: Any) -> Any:
        """The reply to the first one."""
        return self.execute_command(*self._waiting.pop(0))


class Cluster:
    """Two servers with half of the slots each."""

    def __init__(self) -> None:
        self.nodes = {place: Node(place) for place in (A, B)}
        self.rows = [[0, HALF - 1, [*A, "id"]], [HALF, 16383, [*B, "id"]]]
        for node in self.nodes.values():
            node.reply = self._reply_of(node)
        slots = SlotMap([A, B], self.nodes.__getitem__, self.nodes.__getitem__)
        self.client: Any = ClusterClient(slots)

    def _reply_of(self, node: Node) -> Callable[..., Any]:
        return lambda *args: self.rows if "SLOTS" in args[0] else f"{node.place[0]}: {args[0]}"

    def asked(self, place: Place) -> list[str]:
        """The commands that a server was asked to run."""
        return [args[0] for args in self.nodes[place].asked if "CLUSTER" not in args[0]]

    def let(self, place: Place, *replies: Any) -> None:
        """Reply this to the next commands, errors among it, and then as usual."""
        left, usual = list(replies), self.nodes[place].reply

        def reply(*args: Any) -> Any:
            answer = left.pop(0) if left and "CLUSTER" not in args[0] else usual(*args)
            if isinstance(answer, Exception):
                raise answer
            return answer

        self.nodes[place].reply = reply


@pytest.fixture
def cluster() -> Cluster:
    """Two servers."""
    return Cluster()


@pytest.mark.parametrize(
    "command",
    [
        ("HGET", KEY, "f"),
        ("EVALSHA", "digest", 2, KEY, KEY, "boyd:{other}:x"),
        ("XREAD", b"COUNT", "1", b"STREAMS", KEY, "0-0"),
        ("XINFO STREAM", KEY),
    ],
)
def test_a_command_goes_to_the_server_of_its_first_key(command: tuple[Any, ...]) -> None:
    assert slot_of(*command) == SLOT


def test_commands_without_a_key_go_with_the_others_of_a_pipeline(cluster: Cluster) -> None:
    pipe = cluster.client.pipeline(transaction=False)
    replies = pipe.time().hget(KEY, "f").hget(ELSEWHERE, "f").execute()

    assert replies == [f"{HERE[0]}: TIME", f"{HERE[0]}: HGET", f"{THERE[0]}: HGET"]
    assert cluster.client.near(ELSEWHERE).time() == f"{THERE[0]}: TIME"


def test_a_redirection_is_followed_and_remembered(cluster: Cluster) -> None:
    cluster.let(HERE, MovedError(f"{SLOT} {THERE[0]}:{THERE[1]}"))
    for _ in range(2):
        assert cluster.client.hget(KEY, "f") == f"{THERE[0]}: HGET"

    assert cluster.asked(HERE) == ["HGET"]


def test_only_redirected_commands_of_a_pipeline_are_repeated(cluster: Cluster) -> None:
    cluster.let(HERE, "first", MovedError(f"{SLOT} {THERE[0]}:{THERE[1]}"))
    pipe = cluster.client.pipeline(transaction=False).get(KEY).hget(KEY, "f").get(ELSEWHERE)

    assert pipe.execute() == ["first", f"{THERE[0]}: HGET", f"{THERE[0]}: GET"]
    assert cluster.asked(HERE) == ["GET", "HGET"]


def test_a_plain_command_follows_its_key_to_a_server_that_is_taking_it(cluster: Cluster) -> None:
    cluster.let(HERE, AskError(f"{SLOT} {THERE[0]}:{THERE[1]}"))

    assert cluster.client.hget(KEY, "f") == f"{THERE[0]}: HGET"
    assert cluster.asked(THERE) == ["ASKING", "HGET"]
    assert cluster.client.hget(KEY, "f") == f"{HERE[0]}: HGET"


@pytest.mark.parametrize("error", [AskError(f"{SLOT} b:1"), TryAgainError("TRYAGAIN")])
def test_a_script_waits_until_all_its_keys_are_on_one_server(
    cluster: Cluster, error: redis.RedisError
) -> None:
    cluster.let(HERE, error, error)

    assert cluster.client.evalsha("digest", 1, KEY) == f"{HERE[0]}: EVALSHA"
    assert cluster.asked(THERE) == []


def test_a_slot_that_keeps_moving_makes_the_store_unavailable(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boyd.store.server.cluster_client.MOVING", 0.0)
    cluster.let(HERE, TryAgainError("TRYAGAIN"))

    with pytest.raises(StoreUnavailable, match="moves the keys"), translate_errors():
        cluster.client.evalsha("digest", 1, KEY)


@pytest.mark.parametrize("error", [redis.TimeoutError("late"), redis.ConnectionError("cut")])
def test_a_command_that_may_have_run_is_not_repeated(
    cluster: Cluster, error: redis.RedisError
) -> None:
    cluster.let(HERE, error)
    with pytest.raises(type(error)):
        cluster.client.evalsha("digest", 1, KEY)
    cluster.client.hget(ELSEWHERE, "f")

    assert cluster.asked(HERE) == ["EVALSHA"]


def test_one_server_away_takes_nothing_from_the_others_of_a_pipeline(cluster: Cluster) -> None:
    cluster.let(HERE, "ran", redis.TimeoutError("late"))
    pipe = cluster.client.pipeline(transaction=False)
    pipe.evalsha("digest", 1, KEY).get(KEY).hget(KEY, "f").hget(ELSEWHERE, "f")
    first, second, third, fourth = replies_of_some(pipe)

    assert (first, fourth) == ("ran", f"{THERE[0]}: HGET")
    assert {type(second), type(third)} == {redis.TimeoutError}
    assert cluster.asked(HERE) == ["EVALSHA", "GET"]


def test_a_cluster_has_no_databases_and_carries_no_messages() -> None:
    with pytest.raises(ConfigError, match="no database"):
        connect("cluster://one:7000,two/3")
    with pytest.raises(ConfigError, match="BOYD_BROKER_URL"):
        make_app("cluster://one:7000,two")
