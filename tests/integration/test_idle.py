"""Idle processes cost Redis few commands and few connections."""

from __future__ import annotations

import re
from typing import Any

import pytest
from kombu import Exchange, Queue

from benchmarks.servers import record_commands
from boyd.messaging.celery_app import make_app
from boyd.store.server.connection import IDLE
from harness import Deployment, patient_client, wait_until

pytestmark = pytest.mark.real

AGENT = "agents.traced:traced"


def waiting(client: Any) -> list[dict[str, str]]:
    """The connections that wait for messages."""
    return [connection for connection in client.client_list() if connection["cmd"] == "brpop"]


def heartbeats(commands: list[str]) -> list[str]:
    """The heartbeats among commands that came over the wire."""
    return [command for command in commands if "boyd:{*}:workers:info" in command]


def test_an_idle_worker_on_a_host_sends_two_commands_a_heartbeat_over_two_connections(
    deployment: Deployment,
) -> None:
    deployment.environment["BOYD_TIMING__HEARTBEAT_INTERVAL"] = "0.2"
    client = deployment.store.client
    client.ping()
    before = len(client.client_list())
    deployment.worker("w", AGENT, "-Q", "host")
    wait_until(lambda: waiting(client))
    with record_commands(deployment.redis_url) as commands:
        wait_until(lambda: len(heartbeats(commands)) >= 3)  # the first ones compare everything
        first = len(commands)
        wait_until(lambda: len(heartbeats(commands[first:])) >= 10)
    wait_until(lambda: len(client.client_list()) - before <= 2)  # ours are closed a little later

    beats = heartbeats(commands[first:])
    rest = [command for command in commands[first:] if command not in beats]
    seals = [command for command in rest if command == "XLEN boyd:{*}:audit:open"]
    # Each turn to sweep and seal comes with a heartbeat; the last one before these may be late.
    assert len(seals) <= len(beats) + 1
    others = {command for command in rest if "boyd:{traced}:" not in command} - set(seals)
    assert all(re.fullmatch(r"BRPOP boyd\.host\.\S+ 5", command) for command in others)


def test_a_worker_that_waits_for_messages_stops_at_once(deployment: Deployment) -> None:
    client = deployment.store.client
    deployment.worker("w", AGENT, "-Q", "host")
    wait_until(lambda: waiting(client))

    assert deployment.stop("w") == 0
    # A connection whose answer comes late is told again.
    assert client.info("commandstats")["cmdstat_client|unblock"]["calls"] >= 1


def test_a_consumer_does_not_wait_for_the_end_of_its_brpop(redis_url: str) -> None:
    app = make_app(redis_url)
    app.conf.broker_transport_options |= {"polling_interval": 600}
    client = patient_client(redis_url)
    queue = Queue("boyd.x", Exchange(""), routing_key="boyd.x")
    with app.connection_for_read() as connection, connection.Consumer([queue]):
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.1)
        wait_until(lambda: len(waiting(client)) == 1)
    app.close()

    wait_until(lambda: not waiting(client))
    client.close()


def test_a_user_who_may_not_unblock_waits_for_the_end(redis_url: str) -> None:
    client = patient_client(redis_url)
    client.acl_setuser(
        "bound", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-client"]
    )
    app = make_app(redis_url.replace("//", "//bound:x@"))
    app.conf.broker_transport_options |= {"polling_interval": 1}
    queue = Queue("boyd.x", Exchange(""), routing_key="boyd.x")
    with app.connection_for_read() as connection, connection.Consumer([queue]):
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.1)
        wait_until(lambda: len(waiting(client)) == 1)
    app.close()

    wait_until(lambda: not waiting(client))
    client.acl_deluser("bound")
    client.close()


def test_connections_that_were_not_used_for_a_while_are_closed(redis_url: str) -> None:
    observer, client = patient_client(redis_url), patient_client(redis_url)
    observer.ping()
    before = len(observer.client_list())
    pool = client.connection_pool
    used = [pool.get_connection() for _ in range(3)]
    for connection in used:
        pool.release(connection)
    assert len(observer.client_list()) == before + 3
    for connection in used[:2]:
        connection.released_at -= IDLE + 1
    client.ping()

    wait_until(lambda: len(observer.client_list()) == before + 1)
    assert client.ping()
    client.close()
    observer.close()
