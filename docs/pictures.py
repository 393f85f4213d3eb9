"""Takes the pictures of the console in docs/images: `make pictures`.

It runs the example, kills the service that it watches, and photographs what people then see. It
needs Chromium.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, ViewportSize, sync_playwright

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
DESK: ViewportSize = {"width": 1200, "height": 760}
PHONE: ViewportSize = {"width": 390, "height": 780}
#: Seconds for anything to happen; the example's folder fills within two minutes.
PATIENCE = 240.0


def main() -> None:
    """Take all pictures."""
    program = shutil.which("chromium")
    if program is None:
        sys.exit("no Chromium here: install the package chromium")
    with (
        tempfile.TemporaryDirectory() as name,
        _example(Path(name)) as link,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_context(viewport=DESK).new_page()
        page.goto(link)
        page.wait_for_url("**/console/")
        _photograph(page, Path(name))
        browser.close()


def _photograph(page: Page, folder: Path) -> None:
    base = page.url.removesuffix("/console/")
    page.goto(f"{base}/console/agents/watch")
    page.get_by_text(re.compile("endpoint is healthy")).first.wait_for(timeout=PATIENCE * 1000)
    os.kill(_service(folder), signal.SIGKILL)
    page.goto(f"{base}/console/")
    page.get_by_role("link", name="scratch:clean").wait_for(timeout=PATIENCE * 1000)
    _take(page, "console-inbox")
    page.goto(f"{base}/console/agents/watch")
    _take(page, "console-agent")
    restart = page.get_by_role("link", name=re.compile("restartService")).first
    restart.wait_for(timeout=PATIENCE * 1000)
    page.goto(restart.evaluate("one => one.href"))
    _take(page, "console-record")
    page.set_viewport_size(PHONE)
    page.goto(f"{base}/console/")
    page.get_by_role("link", name="scratch:clean").click()
    page.get_by_role("link", name=re.compile("Approve")).wait_for()
    _take(page, "console-phone")


def _take(page: Page, name: str) -> None:
    page.locator("#stream[data-state]:not([data-state=connecting])").wait_for()
    page.screenshot(path=IMAGES / f"{name}.png")
    print(f"took docs/images/{name}.png")


@contextmanager
def _example(folder: Path) -> Iterator[str]:
    """Run the example; yield the link that opens its console."""
    environment = {
        **os.environ,
        "BOYD_STATE_DIR": str(folder / "state"),
        "XDG_STATE_HOME": str(folder),
        "BOYD_API__PORT": "0",
    }
    output = folder / "output"
    command = [sys.executable, "-m", "boyd_cli", "up", "examples/watch/agent.toml"]
    with output.open("w") as file:
        process = subprocess.Popen(  # noqa: S603  # our own command
            command, cwd=ROOT, env=environment, stdout=file, stderr=file
        )
    try:
        yield _wait(lambda: re.search(r"http\S+/console/open/\S+", output.read_text()))[0]
    finally:
        process.terminate()
        process.wait(60)
        with suppress(ProcessLookupError):
            os.kill(_service(folder), signal.SIGKILL)


def _service(folder: Path) -> int:
    """The process of the watched service."""
    file = folder / "boyd-watch" / "service.pid"
    return int(_wait(lambda: file.exists() and file.read_text().split())[0])


def _wait(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        if time.monotonic() > deadline:
            sys.exit("the example did not do what it should; nothing more is photographed")
        time.sleep(0.2)
    return found


if __name__ == "__main__":
    main()
