"""Hurts the world, one fault after the other, the same ones for the same seed."""

from __future__ import annotations

import random
import signal
import threading
import time
from dataclasses import dataclass
from typing import ClassVar

import redis

from boyd.store.fleet import ALIVE
from boyd.store.keys import Keys
from faults.rough_world import NEVER_ACT, RoughWorld
from faults.world import AGENTS, World

#: Each fault and how often it comes, compared to the others.
FAULTS = {
    "kill worker": 5,
    "stop worker": 4,
    "end worker": 3,
    "kill beat": 2,
    "stop beat": 2,
    "kill api": 3,
    "stop api": 1,
    "pause redis": 2,
    "kill redis": 1,
    "drop connections": 2,
    "lose messages": 3,
    "fill disk": 1,
    "shift clock": 2,
    "slow line": 2,
    "lose actors": 1,
    "lose key": 3,
    "foreign key": 3,
    "forbid command": 3,
}
#: Keys of an agent that it goes on without; the others hold what was acknowledged.
REPLACEABLE = (
    *("loop", "due", "jobs", "iteration", "events"),
    *("observers:ran", "observers:health"),
)
#: Commands that steps cannot do without.
NEEDED = (
    *("hset", "hget", "hmget", "hgetall", "hdel", "hincrby", "hexists", "zadd", "zrem", "zscore"),
    *("zrange", "zrangebyscore", "zcard", "zcount", "xadd", "del", "exists", "pexpire", "rename"),
    *("set", "get", "scard", "sadd", "srem", "smembers", "lrange", "llen", "ltrim", "lpush"),
)
#: Seconds that a clock is put ahead of the true time.
SHIFTS = (-3600.0, -30.0, 5.0, 3600.0)


@dataclass(frozen=True)
class Fault:
    """A fault, its time (seconds since the epoch), and its duration in seconds."""

    kind: str
    target: str
    at: float
    seconds: float


class Injector:
    """Injects faults in a thread until it is stopped."""

    #: Each fault and how often it comes.
    faults_of: ClassVar[dict[str, int]] = {}

    def __init__(self, world: World, seed: int, pause: float = 2.0) -> None:
        self._world = world
        self._dice = random.Random(f"{seed}/faults")
        self._pause = pause
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.faults: list[Fault] = []
        self.error: BaseException | None = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the current fault, and heal everything."""
        self._stopping.set()
        self._thread.join(60)
        self._world.heal()
        if self.error:
            raise self.error

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._dice.uniform(0.3, 1.7) * self._pause):
                [kind] = self._dice.choices(*zip(*self.faults_of.items(), strict=True))
                self._inject(kind, self._dice.uniform(0.3, 4.0))
        except BaseException as error:  # noqa: BLE001 - told by `stop`
            self.error = error

    def _inject(self, kind: str, seconds: float) -> None:
        verb, _, process_name = kind.partition(" ")
        world = self._world
        processes = {"worker": world.workers, "beat": world.beats, "api": world.apis}
        names = processes.get(process_name) or [
            name for name in world.others if name == process_name
        ]
        began = time.time()
        if names:
            target = self._dice.choice(names)
            self._hurt(verb, target, seconds)
        else:
            target = self._inject_other(kind, seconds)
        self.faults.append(Fault(kind, target, began, time.time() - began))

    def _inject_other(self, kind: str, seconds: float) -> str:
        """Hurt what is no process of Boyd; what was hurt."""
        raise NotImplementedError

    def _hurt(self, verb: str, target: str, seconds: float) -> None:
        """Kill, end or stop a process and all that it started, for a while."""
        if verb == "end":
            self._world.end_group(target)
            self._world.launch(target)
        elif verb == "stop":
            self._world.signal(target, signal.SIGSTOP)
            time.sleep(seconds)
            self._world.signal(target, signal.SIGCONT)
        else:
            self._world.signal(target, signal.SIGKILL)
            time.sleep(seconds / 4)
            self._world.launch(target)

    def _hurt_redis(self, kind: str, seconds: float) -> None:
        """Kill or stop the server, or hurt what passes through it."""
        server = self._world.redis
        if kind == "kill redis":
            server.signal(signal.SIGKILL)
            time.sleep(seconds / 4)
            server.start()
        elif kind == "pause redis":
            server.signal(signal.SIGSTOP)
            time.sleep(seconds)
            server.signal(signal.SIGCONT)
        else:
            self._hurt_broker(kind)

    def _hurt_broker(self, kind: str) -> None:
        with redis.Redis.from_url(self._world.redis.url, socket_timeout=5) as client:
            if kind == "drop connections":
                client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                return
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                for queue in client.scan_iter("boyd.*", count=1000, _type="list"):
                    client.lpop(queue)


class RoughInjector(Injector):
    """Hurts everything that there is on one Redis."""

    faults_of = FAULTS

    def __init__(self, world: RoughWorld, seed: int, pause: float = 2.0) -> None:
        super().__init__(world, seed, pause)
        self._world: RoughWorld = world

    def _inject_other(self, kind: str, seconds: float) -> str:
        target = "redis"
        if kind == "fill disk":
            self._fill_disk(seconds)
        elif kind == "shift clock":
            target = self._shift_clock()
        elif kind == "slow line":
            target = self._slow_line(seconds)
        elif kind == "lose actors":
            self._lose_actors(seconds)
        elif kind in ("lose key", "foreign key"):
            target = self._hurt_key(kind, seconds)
        elif kind == "forbid command":
            target = self._forbid(seconds)
        else:
            self._hurt_redis(kind, seconds)
        return target

    def _fill_disk(self, seconds: float) -> None:
        """Leave Redis no room for a while; it ends itself, and is started once there is some."""
        if self._world.disk is None:
            return
        self._world.disk.fill()
        time.sleep(seconds)
        self._world.disk.free()
        if not self._world.redis.running:
            self._world.redis.start()

    def _shift_clock(self) -> str:
        """Put the wall clock of a process ahead or back, for good."""
        target = self._dice.choice((*World.workers, *World.beats, *World.apis))
        ahead = self._dice.choice(SHIFTS)
        if self._world.shifts:
            self._world.shift(target, ahead)
        return target

    def _slow_line(self, seconds: float) -> str:
        """Let what a process and Redis say to each other take its time."""
        target, line = self._dice.choice(list(self._world.slow.items()))
        line.delay = self._dice.uniform(0.05, 0.4)
        time.sleep(seconds)
        line.delay = 0.0
        return target

    def _lose_actors(self, seconds: float) -> None:
        """Stop every worker that acts, for long enough that it counts as dead."""
        actors = [name for name in World.workers if name not in NEVER_ACT]
        for name in actors:
            self._world.signal(name, signal.SIGSTOP)
        time.sleep(ALIVE + seconds)
        for name in actors:
            self._world.signal(name, signal.SIGCONT)

    def _hurt_key(self, kind: str, seconds: float) -> str:
        """Delete a key, or put another type in its place for a moment."""
        key = Keys(self._dice.choice(AGENTS)).prefix + self._dice.choice(REPLACEABLE)
        with redis.Redis(port=self._world.redis.port, socket_timeout=5) as client:
            if kind == "foreign key":
                client.set(key, "foreign")
                time.sleep(seconds / 8)
            client.delete(key)
        return key

    def _forbid(self, seconds: float) -> str:
        """Forbid everybody a command for a moment."""
        command = self._dice.choice(NEEDED)
        with redis.Redis(port=self._world.redis.port, socket_timeout=5) as client:
            client.execute_command("ACL", "SETUSER", "default", f"-{command}")
            time.sleep(seconds / 8)
            client.execute_command("ACL", "SETUSER", "default", f"+{command}")
        return command
