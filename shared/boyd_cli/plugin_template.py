"""The files of a new package with a plugin, for `boyd plugins new`."""

from __future__ import annotations

import keyword
import re
from string import Template

from boyd.errors import ConfigError
from boyd.plugin.discovery import find_entry_point
from boyd.text.version import VERSION

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
#: Characters of the longest name.
_LONGEST = 40

_PYPROJECT = Template("""\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "boyd-$name"
version = "0.1.0"
description = "A plugin for Boyd: $title."
readme = "README.md"
requires-python = ">=3.11"
keywords = ["boyd", "boyd-plugin"]
dependencies = ["boyd>=$version"]

[project.optional-dependencies]
test = ["boyd[testing]", "pytest"]

# The name on the left is what agent files write after `use =`.
[project.entry-points."boyd.plugins"]
$name = "$module:$cls"

[tool.hatch.build.targets.wheel]
packages = ["src/$module"]
""")

_README = Template("""\
# boyd-$name

A plugin for Boyd: $title.

    pip install boyd-$name

In an agent file:

```toml
[[plugins]]
use = "$name"
[plugins.options]
$options
```

`boyd plugins show $name` shows all options and components.

## Rights

$rights

## Development

    pip install -e '.[test]'
    pytest
""")

_PLUGIN = Template('''\
"""Watches the free space of a folder, and removes files of it after an approval."""

from __future__ import annotations

import shutil
from pathlib import Path

from boyd import Context, Observation, Plugin, action, observer
from boyd.models import Model
from pydantic import Field


class RemoveParams(Model):
    """Parameters of the action; invalid ones are refused before it runs."""

    file: str = Field(pattern=r"^[^/]+$$", description="a file in the folder")


class $cls(Plugin):
    """Watches the free space of a folder."""

    id = "$name"

    class Options(Plugin.Options):
        """The options that an agent file may set.

        Attributes:
            folder: the folder to watch.
            min_free: percent of the disk below which it is too full.
        """

        folder: Path = Path("/tmp")
        min_free: float = Field(default=10.0, gt=0, lt=100)

    options: Options

    @observer(interval=60, timeout=5)
    def space(self, ctx: Context) -> list[Observation]:
        """How much of the disk is free, in percent."""
        disk = shutil.disk_usage(self.options.folder)
        free = round(100 * disk.free / disk.total, 1)
        return [
            Observation(
                source=f"{self.id}/space",
                type="metric",
                severity="warning" if free < self.options.min_free else "info",
                data={"folder": str(self.options.folder), "free": free},
            )
        ]

    @action(
        risk="medium", reversibility="irreversible", autonomy="approval-required", target="file"
    )
    def remove(self, params: RemoveParams) -> dict[str, int]:
        """Remove a file."""
        path = self._file(params)
        size = path.stat().st_size
        path.unlink()
        return {"bytes": size}

    @remove.dry_run
    def _would_remove(self, params: RemoveParams) -> str:
        path = self._file(params)
        return f"Would remove {path} ({path.stat().st_size} bytes)"

    @remove.verify(within=10, every=1)
    def _is_removed(self, params: RemoveParams) -> bool:
        return not (self.options.folder / params.file).exists()

    def _file(self, params: RemoveParams) -> Path:
        path = self.options.folder / params.file
        if not path.is_file():
            raise FileNotFoundError(f"{path} is no file")
        return path
''')

_TEST = Template('''\
"""The plugin in a lab: the real loop, without Redis and workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from boyd import Agent
from boyd.plugin.discovery import find_plugin
from boyd.testing import Lab
from $module import $cls, RemoveParams


def test_agent_files_find_it_by_its_name() -> None:
    assert find_plugin("$name") is $cls


def test_a_disk_that_is_too_full_is_a_warning(tmp_path: Path) -> None:
    lab = Lab(Agent("test", plugins=[$cls(folder=tmp_path, min_free=99.99)]))

    (seen,) = lab.run().observations

    assert seen.severity == "warning"
    assert seen.data["folder"] == str(tmp_path)


def test_removing_a_file_is_previewed_done_and_verified(tmp_path: Path) -> None:
    (tmp_path / "big.log").write_text("x" * 100)
    action = Agent("test", plugins=[$cls(folder=tmp_path)]).host.actions["$name:remove"]
    params = RemoveParams(file="big.log")

    assert "100 bytes" in action.call("dry_run", params=params)
    assert action.call("verify", params=params) is False
    assert action.call("execute", params=params) == {"bytes": 100}
    assert action.call("verify", params=params) is True


def test_a_file_elsewhere_is_refused() -> None:
    with pytest.raises(ValueError, match="file"):
        RemoveParams(file="../passwd")
''')

_CONNECTOR = Template('''\
"""Watches the switches of a service over HTTP, and turns them on or off if options permit it."""

from __future__ import annotations

from typing import Any

from boyd import Connector, Context, Observation, action, observer
from boyd.models import Model
from boyd.plugins.results import difference
from boyd.plugins.http_service import BaseUrl, HttpAccess, HttpService, ServiceError
from pydantic import BaseModel, ConfigDict, Field

#: The most observations of one check; the rest is counted.
MAX_ITEMS = 100


class SetParams(Model):
    """Parameters of the action; invalid ones are refused before it runs."""

    switch: str = Field(pattern=r"^[a-z0-9-]{1,40}$$")
    enabled: bool


class EnabledActions(BaseModel):
    """The actions that are enabled, each with its credentials.

    Attributes:
        set_switch: turn switches on and off.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    set_switch: HttpAccess | None = None


class $cls(Connector):
    """Watches the switches of a service, and turns them."""

    id = "$name"

    class Options(Connector.Options):
        """The options that an agent file may set.

        Attributes:
            url: where the service is.
            access: credentials for reading.
            actions: the enabled actions; none by default.
        """

        url: BaseUrl
        access: HttpAccess = HttpAccess()
        actions: EnabledActions = EnabledActions()

    options: Options

    @observer(interval=30, timeout=15)
    def switches(self, ctx: Context) -> list[Observation]:
        """One warning for each switch that is off, and a summary."""
        found = self._service(self.options.access).get(ctx, "/switches")
        off = sorted(name for name, on in found.items() if not on)
        source = f"{self.id}/switches"
        warnings = [
            Observation(source=source, type="state", severity="warning", data={"switch": name})
            for name in off[:MAX_ITEMS]
        ]
        summary = Observation(
            source=source,
            type="metric",
            severity="info",
            data={"switches": len(found), "off": len(off)},
        )
        return [*warnings, summary]

    @action(risk="medium", autonomy="approval-required", target="switch", idempotent=True)
    def set_switch(self, params: SetParams, ctx: Context) -> dict[str, bool]:
        """Turn a switch on or off."""
        service = self._service(self._own)
        before = service.get(ctx, f"/switches/{params.switch}")
        service.send(ctx, "PUT", f"/switches/{params.switch}", body=params.enabled)
        return {"before": before}

    @set_switch.dry_run
    def _would_set(self, params: SetParams, ctx: Context) -> str:
        before = self._service(self._own).get(ctx, f"/switches/{params.switch}")
        now, then = {"enabled": before}, {"enabled": params.enabled}
        return difference(now, then, params.switch) or "Nothing would change"

    @set_switch.rollback
    def _set_back(self, params: SetParams, result: Any, ctx: Context) -> None:
        before = result.output["before"]
        self._service(self._own).send(ctx, "PUT", f"/switches/{params.switch}", body=before)

    @set_switch.verify(within=30, every=2)
    def _is_set(self, params: SetParams, ctx: Context) -> bool | None:
        try:
            now = self._service(self.options.access).get(ctx, f"/switches/{params.switch}")
        except ServiceError:
            return None  # it cannot tell
        return now is params.enabled

    @property
    def _own(self) -> HttpAccess:
        access: HttpAccess = self.access_of("set_switch", self.options.access)
        return access

    def _service(self, access: HttpAccess) -> HttpService:
        return HttpService(self.options.url, access)
''')

_CONNECTOR_TEST = Template('''\
"""The plugin against a service of the test, in a lab: the real loop, without Redis and workers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from boyd import ActionResult, Agent
from boyd.plugin.discovery import find_plugin
from boyd.testing import Lab
from $module import $cls, SetParams


class Service(ThreadingHTTPServer):
    """Keeps switches in memory."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.switches = {"lamp": False}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(self._kept if self.path == "/switches" else self._kept[self._name])

    def do_PUT(self) -> None:
        length = int(self.headers["Content-Length"])
        self._kept[self._name] = json.loads(self.rfile.read(length))
        self._answer(None)

    @property
    def _kept(self) -> dict[str, Any]:
        assert isinstance(self.server, Service)
        return self.server.switches

    @property
    def _name(self) -> str:
        return self.path.rpartition("/")[2]

    def _answer(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def plugin(service: Service, **options: Any) -> $cls:
    return $cls(url=f"http://127.0.0.1:{service.server_port}", **options)


def test_agent_files_find_it_by_its_name() -> None:
    assert find_plugin("$name") is $cls


def test_it_only_reads_unless_options_enable_an_action(service: Service) -> None:
    assert not Agent("test", plugins=[plugin(service)]).host.actions


def test_a_switch_that_is_off_is_a_warning(service: Service) -> None:
    seen = Lab(Agent("test", plugins=[plugin(service)])).run().observations

    assert [(one.severity, one.type) for one in seen] == [("warning", "state"), ("info", "metric")]


def test_a_switch_is_turned_verified_and_turned_back(service: Service) -> None:
    lab = Lab(Agent("test", plugins=[plugin(service, actions={"set_switch": {}})]))
    action = lab.agent.host.actions["$name:set_switch"]
    given = {"params": SetParams(switch="lamp", enabled=True), "ctx": lab.engine.context("$name")}

    assert "+enabled: true" in action.call("dry_run", **given)
    output = action.call("execute", **given)
    result = ActionResult(action=action.id, success=True, duration=1, output=output)
    assert service.switches == {"lamp": True}
    assert action.call("verify", result=result, **given) is True

    action.call("rollback", result=result, **given)
    assert service.switches == {"lamp": False}
''')

_RIGHTS = "It reads the size of the disk, and removes files of the folder after an approval."
_CONNECTOR_RIGHTS = """\
It only reads. An action exists once its table is in the agent file, with credentials of its own:

```toml
[plugins.options.actions.set_switch]
token = { file = "/run/secrets/token" }
```"""


def package_files(name: str, *, connector: bool) -> dict[str, str]:
    """The files of the package of the plugin *name*, by path in its folder.

    Raises:
        ConfigError: it is no name for a plugin.
    """
    if not _NAME.fullmatch(name) or len(name) > _LONGEST or name.startswith("boyd"):
        raise ConfigError(
            f"{name!r} is no name for a plugin: use lower-case letters, digits and '-', at most "
            f"{_LONGEST}, as in disk-watch; its package is called boyd-NAME; nothing was written"
        )
    module = f"boyd_{name.replace('-', '_')}"
    cls = "".join(part.capitalize() for part in name.split("-"))
    plugin, test = (_CONNECTOR, _CONNECTOR_TEST) if connector else (_PLUGIN, _TEST)
    used = re.findall(r"^(?:from \S+ )?import (.+)", plugin.template + test.template, re.MULTILINE)
    if keyword.iskeyword(cls) or cls in ", ".join(used).split(", ") or find_entry_point(name):
        raise ConfigError(f"the name {name!r} is taken; nothing was written")
    values = {
        "name": name,
        "module": module,
        "cls": cls,
        "title": name.replace("-", " "),
        "version": VERSION,
        "options": 'url = "https://service.example"' if connector else 'folder = "/var/log"',
        "rights": _CONNECTOR_RIGHTS if connector else _RIGHTS,
    }
    texts = {
        "pyproject.toml": _PYPROJECT,
        "README.md": _README,
        f"src/{module}/__init__.py": plugin,
        f"tests/test_{name.replace('-', '_')}.py": test,
    }
    return {path: text.substitute(values) for path, text in texts.items()} | {
        f"src/{module}/py.typed": ""
    }
