"""Clients in other languages, which generators make of `/openapi.json`.

`python tests/kits/client_kit.py` installs the generator for Python; `npm_kit` has the other.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import requests

from npm_kit import CLIENTS
from pip_kit import PipParts

_REQUIREMENTS = Path(__file__).parents[1] / "data" / "clients" / "requirements.txt"
PYTHON = PipParts("clients", _REQUIREMENTS.read_text().split(), "--no-deps")


class PythonClient:
    """The package `boyd_client` that openapi-python-client makes of the API at *url*."""

    def __init__(self, url: str, folder: Path) -> None:
        self._packages = PYTHON.require()
        self._folder = folder
        command = ("generate", "--path", _document(url, folder), "--meta", "none")
        self._run("-m", "openapi_python_client", *command, "--output-path", "boyd_client")

    def run(self, program: str, **environment: str) -> str:
        """The output of a program that uses it."""
        return self._run("-c", program, **environment)

    def _run(self, *arguments: str, **environment: str) -> str:
        paths = f"{self._packages}{os.pathsep}{self._folder}"
        path = f"{self._packages / 'bin'}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PYTHONPATH": paths, "PATH": path, **environment}
        return _output([sys.executable, *arguments], self._folder, environment)


class TypeScriptClient:
    """The types that openapi-typescript makes of the API at *url*, with openapi-fetch."""

    def __init__(self, url: str, folder: Path) -> None:
        self._folder = folder
        modules = CLIENTS.require() / "node_modules"
        (folder / "node_modules").symlink_to(modules)
        (folder / "package.json").write_text('{"type": "module"}')
        self._bin = modules / ".bin"
        self._node("openapi-typescript", _document(url, folder), "--output", "boyd.d.ts")

    def run(self, program: str, **environment: str) -> str:
        """The output of a program that uses it, compiled with all checks."""
        (self._folder / "program.ts").write_text(program)
        options = ("--strict", "--exactOptionalPropertyTypes", "--noEmitOnError")
        targets = ("--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom")
        self._node("tsc", *options, *targets, "program.ts")
        environment = {**os.environ, **environment}
        return _output(["node", "program.js"], self._folder, environment)

    def _node(self, name: str, *arguments: str) -> None:
        _output(["node", str(self._bin / name), *arguments], self._folder, dict(os.environ))


def _document(url: str, folder: Path) -> str:
    """The name of the file with the document of that API."""
    file = folder / "boyd.json"
    file.write_bytes(requests.get(f"{url}/openapi.json", timeout=60).content)
    return file.name


def _output(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


if __name__ == "__main__":
    PYTHON.install()
