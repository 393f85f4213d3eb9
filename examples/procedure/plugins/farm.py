"""The plugin of this example: two web servers behind HAProxy, and what can be done with them.

It starts HAProxy and the servers where they do not run. All of them outlive the agent; the servers
end a minute after nobody has asked for them, and `boyd` leaves the proxy running.
"""

from __future__ import annotations

import csv
import os
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Any, Literal

from boyd import (
    Context,
    Decision,
    Observation,
    Plugin,
    PluginError,
    Situation,
    SituationAssessment,
    action,
    observer,
    orienter,
    strategy,
)
from boyd.models import EffectVerdict, JsonObject, Model
from boyd.plugins.process import Program, Supervised

HERE = Path(__file__).resolve().parent.parent
STATE = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "boyd-farm"
#: The ports of the proxy and of the servers.
PORT, *PORTS = map(int, os.environ.get("FARM_PORTS", "8770 8771 8772").split())
#: Seconds after which a server is worn out.
WORN_AFTER = os.environ.get("FARM_WORN_AFTER", "60")
SERVERS = dict(zip(("web1", "web2"), PORTS, strict=True))
SOCKET = STATE / "haproxy.sock"

CONFIG = f"""\
global
    stats socket {SOCKET} mode 600 level admin
defaults
    mode http
    option http-server-close
    option redispatch
    retries 3
    timeout connect 1s
    timeout client 10s
    timeout server 10s
frontend in
    bind 127.0.0.1:{PORT}
    default_backend web
backend web
    balance roundrobin
    option httpchk GET /status
    default-server check inter 300ms fall 4 rise 1
    server web1 127.0.0.1:{SERVERS["web1"]}
    server web2 127.0.0.1:{SERVERS["web2"]}
"""


class ServerParams(Model):
    """The name of a server."""

    server: Literal["web1", "web2"]


class StateParams(ServerParams):
    """The state that the proxy gives a server: it gets no new requests, or does."""

    state: Literal["drain", "ready"]


class Farm(Plugin):
    """Web servers behind HAProxy that have to be restarted now and then."""

    id = "farm"

    def init(self, ctx: Context) -> None:
        """Start what does not run."""
        haproxy = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
        if haproxy is None:
            raise PluginError(self.id, "HAProxy is missing: install it (apt install haproxy)")
        STATE.mkdir(parents=True, exist_ok=True)
        config = STATE / "haproxy.cfg"
        config.write_text(CONFIG, encoding="utf-8")
        for name in SERVERS:
            Supervised(_program(name)).start()
        run = [haproxy, "-db", "-f", str(config)]
        log = STATE / "haproxy.log"
        Supervised(Program(argv=run, pidfile=STATE / "haproxy.pid", log=log)).start()

    @observer()
    def servers(self, ctx: Context) -> list[Observation]:
        """Ask each server whether it is worn out."""
        return [self._observe(name, ctx) for name in SERVERS]

    @orienter()
    def judge(self, observations: list[Observation]) -> SituationAssessment:
        """Find the servers that are worn out."""
        own = [one for one in observations if one.source == self.id]
        worn = [str(one.data["server"]) for one in own if one.data["worn"]]
        finding = f"{' and '.join(worn)} should be restarted" if worn else "No server is worn out"
        return SituationAssessment(
            source=f"{self.id}:judge", findings=[finding], confidence=0.9, data={"worn": list(worn)}
        )

    @strategy()
    def renew(self, situation: Situation) -> Decision:
        """Renew the first server that is worn out."""
        worn: Any = situation.evidence(f"{self.id}:judge")["worn"]
        return Decision(
            action="procedures:renew",
            params={"server": worn[0]},
            rationale=f"{worn[0]} is worn out",
            confidence=0.9,
        )

    @renew.applicable_when
    def _worn(self, situation: Situation) -> bool:
        return bool(situation.evidence(f"{self.id}:judge").get("worn"))

    @action(target="server", reversibility="externally-reversible")
    def set_state(self, params: StateParams) -> str:
        """Let the proxy send a server no new requests, or send it requests again."""
        _note(f"set_state {params.server} {params.state}")
        answer = _ask_proxy(f"set server web/{params.server} state {params.state}")
        if answer.strip():
            raise RuntimeError(answer.strip())
        return f"{params.server} is to be {params.state}"

    @set_state.verify(within=20, every=0.3)
    def _state_shows(self, params: StateParams) -> EffectVerdict:
        status = _row(params.server)["status"]
        shows = status == "UP" if params.state == "ready" else not status.startswith("UP")
        return EffectVerdict(
            verdict="effective" if shows else "no effect",
            evidence=f"the proxy says {status}",
            final=shows,
        )

    @action(target="server", reversibility="read-only")
    def sessions(self, params: ServerParams) -> JsonObject:
        """Count the requests that a server is answering."""
        return {"sessions": int(_row(params.server)["scur"])}

    @action(target="server", timeout=20, reversibility="externally-reversible")
    def restart(self, params: ServerParams) -> str:
        """Stop a server and start it again."""
        _note(f"restart {params.server}")
        return f"{params.server} runs as process {Supervised(_program(params.server)).restart()}"

    @restart.dry_run
    def _would_restart(self, params: ServerParams) -> str:
        found = Supervised(_program(params.server)).find()
        return f"Would stop process {found.pid}" if found else "Would start it"

    @restart.verify(within=20, every=0.3)
    def _is_fresh(self, params: ServerParams, ctx: Context) -> bool:
        return not _status(params.server, ctx)["worn"]

    def _observe(self, name: str, ctx: Context) -> Observation:
        try:
            state = _status(name, ctx)
        except OSError:
            state = {"worn": True, "age": None}
        level: Literal["info", "warning"] = "warning" if state["worn"] else "info"
        data: JsonObject = {"server": name, **state}
        return Observation(source=self.id, type="state", severity=level, data=data)


def _program(name: str) -> Program:
    run = [sys.executable, str(HERE / "server.py"), name, str(SERVERS[name])]
    return Program(argv=[*run, "--worn-after", WORN_AFTER], pidfile=STATE / f"{name}.pid")


def _status(name: str, ctx: Context) -> JsonObject:
    """What a server says of itself. Raises `OSError` if it does not answer."""
    got = ctx.http.get(f"http://127.0.0.1:{SERVERS[name]}/status?agent", timeout=2)
    found: JsonObject = got.json()
    return found


def _row(server: str) -> dict[str, str]:
    """What the proxy knows of a server."""
    lines = _ask_proxy("show stat").lstrip("# ").splitlines()
    return next(row for row in csv.DictReader(lines) if row["svname"] == server)


def _ask_proxy(command: str) -> str:
    with socket.socket(socket.AF_UNIX) as proxy:
        proxy.settimeout(5)
        proxy.connect(str(SOCKET))
        proxy.sendall(f"{command}\n".encode())
        return b"".join(iter(lambda: proxy.recv(65536), b"")).decode()


def _note(what: str) -> None:
    """Log an effect, as a trace that does not depend on Boyd."""
    with (STATE / "effects.log").open("a", encoding="utf-8") as file:
        file.write(f"{time.time():.3f} {what}\n")
