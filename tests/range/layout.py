"""The places of the range, for its agents and for those who watch them from outside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import requests

from boyd.plugins.process import Program, Supervised
from harness import free_port

#: The services, and the folder on the small disk that one of them writes to.
SERVICES = ("front", "shop", "mail", "spool")
#: Sessions that the role `app` may have.
CONNECTIONS = 6
#: Seconds in which a service has to answer.
PATIENT = 1.5
_CONFIG = """\
{user}
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/nginx-body;
  proxy_temp_path {folder}/nginx-proxy;
  fastcgi_temp_path {folder}/nginx-fastcgi;
  uwsgi_temp_path {folder}/nginx-uwsgi;
  scgi_temp_path {folder}/nginx-scgi;
  server {{
    listen 127.0.0.1:{proxy};
    location = / {{ {rule} proxy_pass http://127.0.0.1:{front}; }}
{mail}  }}
}}
"""
_MAIL = '    location = /mail { return 200 "mail"; }\n'


@dataclass(frozen=True)
class Layout:
    """Folders and ports; `disk` is a small one."""

    folder: Path
    ports: dict[str, int]

    @property
    def disk(self) -> Path:
        """The folder that the small disk is mounted on."""
        return self.folder / "disk"

    @property
    def scratch(self) -> Path:
        """The files on the small disk that nobody needs."""
        return self.disk / "scratch"

    @property
    def ledger(self) -> Path:
        """A file that somebody needs."""
        return self.folder / "ledger" / "ledger.db"

    @property
    def attic(self) -> Path:
        """The folder for removed files."""
        return self.folder / "attic"

    @property
    def config(self) -> Path:
        """The configuration of the proxy; the last good one lies beside it."""
        return self.folder / "nginx.conf"

    @property
    def good_config(self) -> Path:
        """The last good configuration of the proxy."""
        return self.folder / "good.conf"

    def lines(self, lane: str) -> Path:
        """The file in which actions say what they do."""
        return self.folder / f"{lane}.lines"

    def mistake(self, lane: str) -> Path:
        """The file that names what the next action does wrong."""
        return self.folder / f"{lane}.mistake"

    def starts(self, name: str) -> Path:
        """The file to which a service adds a line when it starts."""
        return self.folder / f"{name}.starts"

    def url(self, name: str) -> str:
        """The address of a service or of the proxy."""
        return f"http://127.0.0.1:{self.ports[name]}/"

    def supervised(self, name: str) -> Supervised:
        """A service as a process."""
        program = str(Path(__file__).with_name("service.py"))
        argv = [sys.executable, program, str(self.ports[name]), "--starts", str(self.starts(name))]
        if name == "spool":
            argv += ["--folder", str(self.disk)]
        pidfile = self.folder / f"{name}.pid"
        return Supervised(Program(argv=argv, pidfile=pidfile, settle=0.1, stop_timeout=1))

    def connect(self, user: str = "boyd", name: str = "agent") -> psycopg.Connection[Any]:
        """A session with the database, which shows *name*."""
        return psycopg.connect(
            host="127.0.0.1",
            port=self.ports["database"],
            dbname="postgres",
            user=user,
            application_name=name,
            autocommit=True,
            connect_timeout=10,
        )

    def configuration(self, *, rule: str = "", mail: bool = True, front: int | None = None) -> str:
        """A configuration of the proxy; a good one without further arguments."""
        return _CONFIG.format(
            user="user root;" if os.geteuid() == 0 else "",
            folder=self.folder,
            proxy=self.ports["proxy"],
            front=front or self.ports["front"],
            rule=rule,
            mail=_MAIL if mail else "",
        )

    def nginx(self, *arguments: str) -> None:
        """Run nginx with the configuration as it is."""
        command = [nginx_program() or "nginx", "-p", str(self.folder), "-c", str(self.config)]
        command += ["-e", str(self.folder / "nginx.log"), *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=20)

    def configure(self, text: str) -> None:
        """Write a configuration of the proxy and have it read."""
        self.config.write_text(text)
        self.nginx("-s", "reload")

    def write(self) -> None:
        """Let the agents know."""
        (self.folder / "layout.json").write_text(json.dumps(self.ports))


def new_layout(folder: Path, database: int) -> Layout:
    """A layout in *folder* with free ports, and the database at a known one."""
    ports = {name: free_port() for name in (*SERVICES, "proxy")}
    return Layout(folder, {**ports, "database": database})


@cache
def layout() -> Layout:
    """The layout that the environment names."""
    folder = Path(os.environ["RANGE"])
    return Layout(folder, json.loads((folder / "layout.json").read_text()))


def nginx_program() -> str | None:
    """The program nginx, which users who are not root seldom have in their path."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


def status(url: str, timeout: float = PATIENT) -> int:
    """The status with which it answers; 0: it does not, or not in time."""
    with requests.Session() as session:
        session.trust_env = False  # no proxy
        try:
            return session.get(url, timeout=timeout).status_code
        except requests.RequestException:
            return 0


def without_mail(config: str) -> str:
    """A configuration of the proxy that no longer knows the mail."""
    return config.replace(_MAIL, "")


def move_files(source: Path, target: Path) -> None:
    """Move all files of a folder into another one, which may be on another disk."""
    target.mkdir(exist_ok=True)
    for path in source.iterdir():
        shutil.move(path, target / path.name)
