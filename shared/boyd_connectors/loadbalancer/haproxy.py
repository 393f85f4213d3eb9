"""HAProxy by its runtime API, on a UNIX or TCP socket."""

from __future__ import annotations

import csv
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from pydantic import BaseModel, ConfigDict, Field

from boyd.models import JsonObject
from boyd.plugin import Context
from boyd_connectors.loadbalancer.balancer import (
    AnswerLost,
    BackendServer,
    BalancerError,
    ServerState,
)

#: The most bytes of an answer, and the seconds until it is there.
MAX_ANSWER = 8_388_608
TIME = 5.0
#: Bits of the administrative state of a server. A name that does not resolve (0x20) also takes it
#: out, but nobody wants that: such a server is down.
_MAINT, _DRAIN = 0x47, 0x18
#: The type of a row of statistics that is about a server.
_SERVER = "2"


class RuntimeSocket(BaseModel):
    """A socket of the runtime API.

    Attributes:
        socket: its path, or `host:port`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    socket: str | None = Field(default=None, pattern=r"^(/.+|[^/\s]+:\d{1,5})$")


class HAProxy:
    """An HAProxy at *address*, a path or `host:port`."""

    def __init__(self, address: str) -> None:
        self._address = address

    def servers(self, ctx: Context) -> Sequence[BackendServer]:
        """All servers of all backends."""
        counted = {
            f"{row['pxname']}/{row['svname']}": row
            for row in csv.DictReader(self._ask("show stat").removeprefix("# ").splitlines())
            if row["type"] == _SERVER
        }
        lines = [line for line in self._ask("show servers state").splitlines() if line]
        names = next((line.split()[1:] for line in lines if line.startswith("# ")), [])
        rows = [
            dict(zip(names, line.split(), strict=False)) for line in lines[1:] if line[0] != "#"
        ]
        known = [(f"{row['be_name']}/{row['srv_name']}", row) for row in rows]
        return [_server(name, row, counted[name]) for name, row in known if name in counted]

    def counters(self, ctx: Context) -> JsonObject:
        """None: they are those of the servers."""
        return {}

    def change(self, server: BackendServer, state: ServerState, weight: int) -> None:
        """Tell the state and the weight, if they differ."""
        if weight != server.weight:
            self._tell(f"set server {server.name} weight {weight}")
        if state != server.state:
            self._tell(f"set server {server.name} state {state}")

    def applied(self, server: BackendServer) -> str | None:
        """Nothing: it counts at once."""
        return None

    def _tell(self, command: str) -> None:
        answer = self._ask(command).strip()
        if answer:
            raise BalancerError(f"HAProxy at {self._address}: {answer[:300]}")

    def _ask(self, command: str) -> str:
        with self._connected() as line:
            answer = b""
            try:
                line.sendall(f"{command}\n".encode())
                while part := line.recv(65536):
                    answer += part
                    if len(answer) > MAX_ANSWER:
                        raise BalancerError(f"HAProxy at {self._address} says too much")
            except OSError as error:
                raise AnswerLost(f"HAProxy at {self._address} did not answer: {error}") from None
        if not answer:
            # A command without an answer is answered by an empty line.
            raise AnswerLost(f"HAProxy at {self._address} ended before it answered")
        text = answer.decode("utf-8", "replace")
        if "Permission denied" in text[:200] or text.startswith("Unknown command"):
            raise BalancerError(f"HAProxy at {self._address}: {text.splitlines()[0]}")
        return text

    @contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        with ExitStack() as stack:
            try:
                if self._address.startswith("/"):
                    line = stack.enter_context(socket.socket(socket.AF_UNIX))
                    line.settimeout(TIME)
                    line.connect(self._address)
                else:
                    host, _, port = self._address.rpartition(":")
                    line = socket.create_connection((host, int(port)), TIME)
                    stack.enter_context(line)
            except OSError as error:
                raise BalancerError(
                    f"HAProxy at {self._address} cannot be reached: {error.strerror or error}"
                ) from None
            yield line


def _server(name: str, row: dict[str, str], counted: dict[str, str]) -> BackendServer:
    admin = int(row["srv_admin_state"])
    state: ServerState = "maint" if admin & _MAINT else "drain" if admin & _DRAIN else "ready"
    status = counted["status"]
    return BackendServer(
        name=name,
        state=state,
        weight=int(row["srv_uweight"]),
        status=status,
        up=status.startswith(("UP", "no check", "DRAIN")),
        backup=counted["bck"] == "1",
        sessions=int(counted["scur"] or 0),
        requests=int(counted["stot"] or 0),
        errors=sum(int(counted[key] or 0) for key in ("hrsp_5xx", "econ", "eresp")),
    )
