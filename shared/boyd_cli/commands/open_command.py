"""`boyd open`: open the console in a browser, signed in."""

from __future__ import annotations

import os
import sys
import webbrowser

import click

from boyd.models.responses import LoginLink
from boyd_cli import output
from boyd_cli.api_access import Api
from boyd_cli.options import deployment_api_options


@click.command("open")
@click.option("--print", "only_print", is_flag=True, help="Print the link, and open no browser.")
@deployment_api_options
def open_console(api: Api, only_print: bool) -> None:
    """Open the console, signed in with your key.

    The link works once, and only for a few minutes.
    """
    link = api.deployment.post("/login-links", LoginLink)
    if link.path is None:
        output.stop(output.FAILED, "the link was lost on the way: try again")
    url = f"{api.url}{link.path}"
    output.say(url)
    if not only_print and _has_screen():
        webbrowser.open(url)


def _has_screen() -> bool:
    """Tell whether a browser would open in a window, and not in this terminal."""
    return "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ or sys.platform == "darwin"
