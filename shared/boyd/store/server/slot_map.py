"""The servers of a Redis Cluster, and which of them serves each slot."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS
from redis.exceptions import MovedError

log = logging.getLogger("boyd.store")

#: Host and port of a server.
Place = tuple[str, int]

#: Seconds between two checks of a server that does not answer.
CHECK = 0.25


class Server:
    """One server of the cluster, with a client of its own.

    Attributes:
        away: whether it did not answer, and has not answered since.
    """

    def __init__(self, place: Place, client: Any) -> None:
        self.place = place
        self.client = client
        self.away = False

    def __str__(self) -> str:
        host, port = self.place
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def check(self) -> None:
        """Check that it may be asked.

        Raises:
            redis.ConnectionError: it is away.
        """
        if self.away:
            raise redis.ConnectionError(f"{self} is away, and no other server serves its slots yet")


class SlotMap:
    """The server of each slot, learned anew when one does not answer.

    A thread watches a server that does not answer, so that nobody else has to wait for it.
    """

    def __init__(
        self,
        seeds: Sequence[Place],
        connect: Callable[[Place], Any],
        connect_quickly: Callable[[Place], Any],
    ) -> None:
        """Learn from *seeds*; *connect_quickly* makes clients for questions about the cluster."""
        self._seeds = tuple(seeds)
        self._known: tuple[Place, ...] = ()
        self._connect = connect
        self._connect_quickly = connect_quickly
        self._servers: dict[Place, Server] = {}
        self._serving: list[Server | None] = []
        self._lock = threading.Lock()
        self._learning = threading.Lock()
        self._refreshing = False
        self._closed = threading.Event()

    def server(self, slot: int) -> Server:
        """The server of a slot.

        Raises:
            redis.ConnectionError: no server of the cluster answers, or none serves the slot.
        """
        if not self._serving:
            with self._learning:
                if not self._serving:
                    self._learn()
        server = self._serving[slot]
        if server is None:
            self.refresh()
            raise redis.ConnectionError(f"no server of the cluster serves slot {slot}")
        return server

    def masters(self) -> list[Server]:
        """The servers that serve slots.

        Raises:
            redis.ConnectionError: no server of the cluster answers.
        """
        if not self._serving:
            self.server(0)
        return list(dict.fromkeys(server for server in self._serving if server is not None))

    def at(self, host: str, port: int) -> Server:
        """The server at that place."""
        with self._lock:
            if (host, port) not in self._servers:
                self._servers[host, port] = Server((host, port), self._connect((host, port)))
            return self._servers[host, port]

    def redirect(self, error: MovedError, source: Server) -> Server:
        """The server that serves a slot instead of *source*, as that one says."""
        server = self.at(error.host or source.place[0], error.port)
        self._serving[error.slot_id] = server
        return server

    def mark_away(self, server: Server) -> None:
        """Ask a server no more until it answers; another one may take its place meanwhile."""
        with self._lock:
            if server.away or self._closed.is_set():
                return
            server.away = True
        log.warning("server %s of the cluster does not answer", server)
        name = f"cluster-{server}"
        threading.Thread(target=self._watch, args=[server], name=name, daemon=True).start()

    def refresh(self) -> None:
        """Learn again, in the background, which server serves which slots."""
        with self._lock:
            if self._refreshing or self._closed.is_set():
                return
            self._refreshing = True
        threading.Thread(target=self._refresh, name="cluster-refresh", daemon=True).start()

    def close(self) -> None:
        """Close all connections."""
        self._closed.set()
        with self._lock:
            for server in self._servers.values():
                server.client.close()

    def _watch(self, server: Server) -> None:
        while not self._answers(server):
            self._try_to_learn()
            if server not in self._serving:
                break
            if self._closed.wait(CHECK):
                return
        server.away = False
        log.warning("server %s of the cluster answers again or is replaced", server)

    def _refresh(self) -> None:
        self._try_to_learn()
        self._closed.wait(CHECK)
        self._refreshing = False

    def _try_to_learn(self) -> None:
        with self._learning:
            try:
                self._learn()
            except redis.RedisError as error:
                log.warning("cannot learn which server serves which slots: %s", error)

    def _learn(self) -> None:
        """Ask servers in turn, those that are away last."""
        away = {place for place, server in self._servers.items() if server.away}
        places, seeds = list(self._known), list(self._seeds)
        random.shuffle(places)
        random.shuffle(seeds)
        failed: redis.RedisError | None = None
        for place in sorted(dict.fromkeys([*places, *seeds]), key=away.__contains__):
            try:
                self._take(place, self._slots_of(place))
                return
            except (redis.ConnectionError, redis.TimeoutError) as error:
                failed = error
        raise redis.ConnectionError(f"no server of the cluster answers: {failed}")

    def _take(self, source: Place, rows: Sequence[Any]) -> None:
        serving: list[Server | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        all_places: list[Place] = []
        for first, last, *servers in rows:
            places = [(host or source[0], int(port)) for host, port, *_ in servers]
            serving[first : last + 1] = [self.at(*places[0])] * (last + 1 - first)
            all_places += places
        self._serving, self._known = serving, tuple(dict.fromkeys(all_places))

    def _slots_of(self, place: Place) -> Sequence[Any]:
        with self._connect_quickly(place) as client:
            rows: Sequence[Any] = client.execute_command("CLUSTER SLOTS")
        if not rows:
            raise redis.ConnectionError(f"{place[0]}:{place[1]} knows no server of any slot")
        return rows

    def _answers(self, server: Server) -> bool:
        try:
            with self._connect_quickly(server.place) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False
