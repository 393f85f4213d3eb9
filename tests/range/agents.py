"""The agents of the range: one for each lane, with real observers and real actions.

Each first remedy can make some mistakes, after which it reports success like any other.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import psutil
import psycopg

from harness import wait_until
from range.lane import Lane, lane_agent
from range.layout import CONNECTIONS, Layout, move_files, status, without_mail

Params = dict[str, Any]


class Database(Lane):
    """Watches a PostgreSQL: locked tables, and roles that have used up their connections."""

    id = "database"
    remedies: ClassVar = {
        "locked table": ("terminate", "terminate_idle"),
        "exhausted connections": ("raise_limit", "drop_sessions"),
    }

    def __init__(self) -> None:
        super().__init__()
        self.components = (
            self.remedy("terminate", "table", self._terminate_holder),
            self.remedy("terminate_idle", "table", self._terminate_idle),
            self.remedy("raise_limit", "role", self._raise_limit, self._change_limit),
            self.remedy("drop_sessions", "role", self._drop_sessions),
        )

    def faults(self) -> dict[str, Params]:
        """See who holds a lock for long, and whether a role has any connection left."""
        params_by_fault: dict[str, Params] = {}
        with self.layout.connect() as session:
            holder = _first(
                session,
                "SELECT max(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)"
                " WHERE relation = 'orders'::regclass AND mode = 'AccessExclusiveLock'"
                " AND granted AND state = 'idle in transaction'"
                " AND now() - state_change > interval '1 second'",
            )
            used = _first(
                session,
                "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'"
                " AND now() - backend_start > interval '1 second'",
            )
            if holder:
                params_by_fault["locked table"] = {"table": "orders", "session": holder}
            if used >= _limit(session):
                params_by_fault["exhausted connections"] = {"role": "app"}
        return params_by_fault

    def harm(self) -> list[str]:
        """See whether the report runs, and whether the role may have as many connections."""
        with self.layout.connect() as session:
            reports = _first(session, f"SELECT count(*) {_SESSIONS} application_name = 'report'")
            few = _limit(session) < CONNECTIONS
        return ([] if reports else ["the report is gone"]) + ["too few connections"] * few

    def _terminate_holder(self, params: Params, mistake: str) -> None:
        if mistake == "terminates another session":
            self._terminate("application_name = 'report'")
        elif not mistake:
            self._terminate(f"pid = {int(params['session'])}")

    def _terminate_idle(self, params: Params, mistake: str) -> None:
        self._terminate("state = 'idle in transaction'")

    def _drop_sessions(self, params: Params, mistake: str) -> None:
        self._terminate("usename = 'app'")

    def _raise_limit(self, params: Params, mistake: str) -> int:
        changes = {"": CONNECTIONS, "raises nothing": 0, "lowers the limit": 1 - CONNECTIONS}
        self._change_limit(-changes[mistake])
        return changes[mistake]

    def _change_limit(self, less: int) -> None:
        with self.layout.connect() as session:
            session.execute(f"ALTER ROLE app CONNECTION LIMIT {_limit(session) - less}")

    def _terminate(self, which: str) -> None:
        with self.layout.connect() as session:
            session.execute(f"SELECT pg_terminate_backend(pid) {_SESSIONS} {which}")


class Proxy(Lane):
    """Watches an nginx, which leads to a service and has a page of its own."""

    id = "proxy"
    remedies: ClassVar = {"wrong config": ("restore", "rebuild")}

    def __init__(self) -> None:
        super().__init__()
        self.components = (
            self.remedy("restore", "name", self._restore, self._put_back),
            self.remedy("rebuild", "name", self._rebuild),
        )

    def faults(self) -> dict[str, Params]:
        """See whether it leads to the service."""
        return {} if _answers(self.layout.url("proxy")) else {"wrong config": {"name": "proxy"}}

    def harm(self) -> list[str]:
        """See whether the page is there."""
        return [] if _answers(self.layout.url("proxy") + "mail") else ["the page is gone"]

    def _restore(self, params: Params, mistake: str) -> str:
        before, good = self.layout.config.read_text(), self.layout.good_config.read_text()
        texts = {
            "": good,
            "reloads the wrong config": before,
            "loses a page": without_mail(before),
            "helps and loses a page": without_mail(good),
        }
        self.layout.configure(texts[mistake])
        return before

    def _put_back(self, before: str) -> None:
        self.layout.configure(before)

    def _rebuild(self, params: Params, mistake: str) -> None:
        self.layout.configure(self.layout.configuration())


class Service(Lane):
    """Watches a service that may be dead, hung or slow, beside another one."""

    id = "service"
    remedies: ClassVar = dict.fromkeys(
        ("killed service", "hung service", "slow service"), ("restart", "replace")
    )

    def __init__(self) -> None:
        super().__init__()
        self.components = (
            self.remedy("restart", "name", self._restart, self._start_again),
            self.remedy("replace", "name", self._replace),
        )

    def faults(self) -> dict[str, Params]:
        """See whether it runs, and answers in time."""
        fault = self._fault()
        return {fault: {"name": "shop"}} if fault else {}

    def harm(self) -> list[str]:
        """See whether the other one answers."""
        return [] if _answers(self.layout.url("mail")) else ["the mail is gone"]

    def _fault(self) -> str | None:
        process = self.layout.supervised("shop").find()
        if process is None:
            return "killed service"
        with suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_STOPPED:
                return "hung service"
        return None if _answers(self.layout.url("shop")) else "slow service"

    def _restart(self, params: Params, mistake: str) -> str:
        if mistake == "stops another service":
            self.layout.supervised("mail").send("KILL")
        elif not mistake:
            _start(self.layout, params["name"])
        return "mail" if mistake == "stops another service" else ""

    def _start_again(self, stopped: str) -> None:
        if stopped:
            _start(self.layout, stopped)

    def _replace(self, params: Params, mistake: str) -> None:
        _replace(self.layout, params["name"])


class Disk(Lane):
    """Watches a service that needs room on a small disk."""

    id = "disk"
    remedies: ClassVar = {
        "full disk": ("clean", "purge"),
        "leaked file": ("restart", "replace"),
    }

    def __init__(self) -> None:
        super().__init__()
        self.components = (
            self.remedy("clean", "name", self._clean, self._bring_back),
            self.remedy("purge", "name", self._purge),
            self.remedy("restart", "name", self._restart),
            self.remedy("replace", "name", self._replace),
        )

    def faults(self) -> dict[str, Params]:
        """See whether the service has room, and if not, what takes it."""
        if _answers(self.layout.url("spool")):
            return {}
        if self._leaks():
            return {"leaked file": {"name": "spool"}}
        return {"full disk": {"name": str(self.layout.scratch)}}

    def harm(self) -> list[str]:
        """See whether the ledger is there."""
        return [] if self.layout.ledger.exists() else ["the ledger is gone"]

    def _leaks(self) -> bool:
        """See whether the service holds a file open that has no name any more."""
        process = self.layout.supervised("spool").find()
        if process is None:
            return False
        opened = Path(f"/proc/{process.pid}/fd").iterdir()
        return any(_remove_from(path, self.layout.disk) for path in opened)

    def _clean(self, params: Params, mistake: str) -> str:
        folder = Path(params["name"])
        if mistake == "cleans another folder":
            folder = self.layout.ledger.parent
        if mistake != "cleans nothing":
            move_files(folder, self.layout.attic / folder.name)
        return str(folder)

    def _bring_back(self, folder: str) -> None:
        move_files(self.layout.attic / Path(folder).name, Path(folder))

    def _purge(self, params: Params, mistake: str) -> None:
        for path in Path(params["name"]).iterdir():
            path.unlink()

    def _restart(self, params: Params, mistake: str) -> None:
        if mistake == "loses the ledger":
            self.layout.ledger.unlink()
        elif not mistake:
            _start(self.layout, params["name"])

    def _replace(self, params: Params, mistake: str) -> None:
        _replace(self.layout, params["name"])


_SESSIONS = "FROM pg_stat_activity WHERE"


def _first(session: psycopg.Connection[Any], query: str) -> Any:
    row = session.execute(query).fetchone()
    return row[0] if row else None


def _limit(session: psycopg.Connection[Any]) -> int:
    return int(_first(session, "SELECT rolconnlimit FROM pg_roles WHERE rolname = 'app'"))


def _answers(url: str) -> bool:
    """Check that it answers as it should, at the second attempt at the latest."""
    return status(url) == 200 or status(url) == 200


def _remove_from(path: Path, disk: Path) -> bool:
    with suppress(OSError):
        target = str(path.readlink())
        removed = target.startswith(str(disk)) and target.endswith("(deleted)")
        return removed and path.stat().st_size > 1_000_000
    return False


def _start(layout: Layout, name: str) -> None:
    layout.supervised(name).restart()
    wait_until(lambda: status(layout.url(name)))


def _replace(layout: Layout, name: str) -> None:
    with suppress(ProcessLookupError):
        layout.supervised(name).send("KILL")
    _start(layout, name)


database, proxy, service, disk = map(lane_agent, (Database(), Proxy(), Service(), Disk()))
