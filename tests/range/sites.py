"""The four sites of the range: a database, a proxy, a service and a disk."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg

from faults.small_disk import SmallDisk
from harness import wait_until
from range.layout import CONNECTIONS, Layout, status, without_mail
from range.site import Site, kill_service, start_service

_TEXT = "one line that somebody needs\n"


class DatabaseSite(Site):
    """Orders in a PostgreSQL, and a report that runs beside."""

    lane = "database"

    def __init__(self, layout: Layout, seed: int) -> None:
        super().__init__(layout, seed)
        self._sessions: list[psycopg.Connection[Any]] = []

    def start(self) -> None:
        """Make the table and the role, and start the report."""
        with self.layout.connect(name="range") as session:
            session.execute("CREATE TABLE orders (id int)")
            session.execute(f"CREATE ROLE app LOGIN CONNECTION LIMIT {CONNECTIONS}")
            session.execute("GRANT SELECT ON orders TO app")
        self._report = self.layout.connect(name="report")

    def stop(self) -> None:
        """Leave its sessions."""
        self._leave()
        self._report.close()

    def inject(self, fault: str) -> None:
        """Lock the table, or use up all connections."""
        if fault == "locked table":
            clerk = self.layout.connect(name="clerk")
            clerk.execute("BEGIN")
            clerk.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
            self._sessions.append(clerk)
            return
        while len(self._sessions) < CONNECTIONS:
            # Whoever looks whether there is one left takes one for a moment.
            with suppress(psycopg.OperationalError):
                self._sessions.append(self.layout.connect("app", "leak"))

    def disturb(self) -> None:
        """Use half of the connections, and have a transaction that locks nobody out."""
        for _ in range(CONNECTIONS // 2):
            self._sessions.append(self.layout.connect("app", "shop"))
        self._sessions[0].execute("BEGIN")
        self._sessions[0].execute("SELECT count(*) FROM orders")

    def is_faulty(self) -> bool:
        """Read the table as its users do."""
        try:
            with self.layout.connect("app", "user") as session:
                session.execute("SET lock_timeout = '300ms'")
                session.execute("SELECT count(*) FROM orders")
        except psycopg.Error:
            return True
        return False

    def is_harmed(self) -> bool:
        """Ask the report's own session, and for the limit."""
        try:
            row = self._report.execute(
                "SELECT rolconnlimit FROM pg_roles WHERE rolname = 'app'"
            ).fetchone()
        except psycopg.Error:
            return True
        assert row is not None
        return bool(row[0] < CONNECTIONS)

    def repair(self) -> None:
        """Start the report again if it is gone, and set the limit."""
        if self._report.closed or self._report.broken:
            self._report.close()
            self._report = self.layout.connect(name="report")
        self._set_limit()

    def reset(self) -> None:
        """Leave all sessions, and set the limit."""
        self._leave()
        self._set_limit()

    def exceeds_rollbacks(self, undone: int, acted: int) -> bool:
        """Tell by the limit, which each rollback raises, and each right action."""
        with self.layout.connect(name="range") as session:
            row = session.execute(
                "SELECT rolconnlimit FROM pg_roles WHERE rolname = 'app'"
            ).fetchone()
        return undone > 0 and row is not None and row[0] > CONNECTIONS * acted

    def _set_limit(self) -> None:
        self._report.execute(f"ALTER ROLE app CONNECTION LIMIT {CONNECTIONS}")

    def _leave(self) -> None:
        for session in self._sessions:
            session.close()
        self._sessions.clear()


class ProxySite(Site):
    """An nginx in front of a service, with a page of its own."""

    lane = "proxy"

    def start(self) -> None:
        """Start the service and nginx."""
        start_service(self.layout, "front")
        self.layout.config.write_text(self.layout.configuration())
        self.layout.good_config.write_text(self.layout.configuration())
        self.layout.nginx()
        wait_until(lambda: not self.is_faulty())

    def stop(self) -> None:
        """Stop both."""
        self.layout.nginx("-s", "stop")
        kill_service(self.layout, "front")

    def inject(self, fault: str) -> None:
        """Let it lead nowhere, or nobody in."""
        ways: list[dict[str, Any]] = [{"front": 9}, {"rule": "deny all;"}, {"rule": "return 500;"}]
        self.layout.configure(self.layout.configuration(**self.dice.choice(ways)))

    def disturb(self) -> None:
        """Have it read a configuration that is as good."""
        self.layout.configure(self.layout.configuration(rule="gzip on;"))

    def is_faulty(self) -> bool:
        """Look at the service through nginx."""
        return status(self.layout.url("proxy")) != 200

    def is_harmed(self) -> bool:
        """Look at the page."""
        return status(f"{self.layout.url('proxy')}mail") != 200

    def repair(self) -> None:
        """Give the page back, and leave the rest of the configuration as it is."""
        text = self.layout.config.read_text()
        page = set(self.layout.configuration().splitlines()) - set(
            without_mail(self.layout.configuration()).splitlines()
        )
        if not page <= set(text.splitlines()):
            self.layout.configure(text.replace("  }\n}\n", f"{page.pop()}\n  }}\n}}\n"))

    def reset(self) -> None:
        """Restore the configuration."""
        self.layout.configure(self.layout.configuration())


class ServiceSite(Site):
    """A service, and another one beside it."""

    lane = "service"

    def start(self) -> None:
        """Start both."""
        for name in ("shop", "mail"):
            start_service(self.layout, name)

    def stop(self) -> None:
        """Kill both."""
        for name in ("shop", "mail"):
            kill_service(self.layout, name)

    def begin(self) -> None:
        """Count the starts of the other one."""
        self._starts = self._count()

    def inject(self, fault: str) -> None:
        """Kill, suspend or slow the first one."""
        if fault == "slow service":
            status(f"{self.layout.url('shop')}slow")
        else:
            send = self.layout.supervised("shop").send
            send("KILL" if fault == "killed service" else "STOP")

    def disturb(self) -> None:
        """Have it answer a lot."""
        for _ in range(100):
            status(self.layout.url("shop"))

    def is_faulty(self) -> bool:
        """Ask the first one."""
        return status(self.layout.url("shop")) != 200

    def is_harmed(self) -> bool:
        """Ask the other one."""
        return status(self.layout.url("mail")) != 200

    def repair(self) -> None:
        """Start the other one, unless it runs."""
        if self.is_harmed():
            start_service(self.layout, "mail")
            self._starts += 1

    def reset(self) -> None:
        """Start what does not answer."""
        for name in ("shop", "mail"):
            if status(self.layout.url(name)) != 200:
                start_service(self.layout, name)

    def exceeds_rollbacks(self, undone: int, acted: int) -> bool:
        """Tell by the starts of the other one."""
        return self._count() - self._starts > undone

    def _count(self) -> int:
        return len(self.layout.starts("mail").read_text().splitlines())


class DiskSite(Site):
    """A service that needs a small disk, and a ledger on another one."""

    lane = "disk"

    def start(self) -> None:
        """Mount the disk, and start the service."""
        self._disk = SmallDisk(self.layout.disk, megabytes=8)
        self.layout.attic.mkdir()
        self.layout.ledger.parent.mkdir()
        self.layout.scratch.mkdir()
        self.repair()
        start_service(self.layout, "spool")

    def stop(self) -> None:
        """Kill the service, and take the disk away."""
        kill_service(self.layout, "spool")
        self._disk.unmount()

    def inject(self, fault: str) -> None:
        """Fill the disk: with files, or with one that has no name."""
        if fault == "leaked file":
            status(f"{self.layout.url('spool')}leak", timeout=20)
        else:
            self._fill(megabytes=16)

    def disturb(self) -> None:
        """Fill half of the disk."""
        self._fill(megabytes=4)

    def is_faulty(self) -> bool:
        """Ask the service, which needs room."""
        return status(self.layout.url("spool")) != 200

    def is_harmed(self) -> bool:
        """Read the ledger."""
        with suppress(OSError):
            return self.layout.ledger.read_text() != _TEXT
        return True

    def repair(self) -> None:
        """Write the ledger again."""
        self.layout.ledger.write_text(_TEXT)

    def reset(self) -> None:
        """Empty the disk."""
        for folder in (self.layout.scratch, self.layout.attic / "scratch"):
            for path in folder.glob("*"):
                path.unlink()
        if self.is_faulty():
            start_service(self.layout, "spool")

    def _fill(self, megabytes: int) -> None:
        for number in range(megabytes * 4):
            with suppress(OSError), (self.layout.scratch / f"{number}.tmp").open("wb", 0) as file:
                file.write(bytes(250_000))
