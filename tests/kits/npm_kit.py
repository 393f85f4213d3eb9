"""Packages of npm that only some tests need, in cache folders outside of the repository.

`python tests/kits/npm_kit.py` installs them all, as each `package-lock.json` pins them.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import platformdirs
import pytest

_DATA = Path(__file__).parents[1] / "data"


class NpmParts:
    """The packages that the folder *name* beside this file lists."""

    def __init__(self, name: str) -> None:
        self._source = _DATA / name
        lock = (self._source / "package-lock.json").read_bytes()
        cache = platformdirs.user_cache_path("boyd-tests")
        #: A folder for each state of the lock file.
        self.folder = cache / f"{name}-{sha256(lock).hexdigest()[:12]}"

    def missing(self) -> str | None:
        """The reason that the packages cannot be used on this machine, if there is one."""
        if shutil.which("node") is None:
            return "node is not installed"
        if not (self.folder / "installed").exists():
            return f"`make parts` installs the packages of {self._source.name} with npm"
        return None

    def require(self) -> Path:
        """The folder with `node_modules`; without one the test is skipped, and fails in CI."""
        reason = self.missing()
        if reason and os.environ.get("CI"):
            pytest.fail(reason)
        if reason:
            pytest.skip(reason)
        return self.folder

    def install(self) -> None:
        """Install the packages, unless that was done."""
        if self.missing() is None:
            return
        making = self.folder.with_name(f"{self.folder.name}.{os.getpid()}")
        making.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(self._source / name, making)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(command, cwd=making, check=True)
        (making / "installed").touch()
        shutil.rmtree(self.folder, ignore_errors=True)
        making.rename(self.folder)


#: An OpenID provider.
OIDC = NpmParts("oidc")
#: MCP servers and the conformance suite, with the release of node that it needs.
MCP = NpmParts("mcp")
#: What makes a client in TypeScript of an OpenAPI document.
CLIENTS = NpmParts("clients")


def conformance(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the official conformance suite of MCP with its own release of node."""
    modules = MCP.require() / "node_modules"
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    node = modules / f"node-linux-{machine}" / "bin" / "node"
    suite = modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    return subprocess.run(
        [node, suite, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300
    )


if __name__ == "__main__":
    if shutil.which("npm") is None:
        sys.exit("npm is not installed: it installs what only some tests need")
    for parts in (OIDC, MCP, CLIENTS):
        parts.install()
