"""The files that `boyd init` and `boyd plugins new` write, as templates."""

from __future__ import annotations

from importlib.resources import files
from string import Template


def load_template(name: str) -> Template:
    """The template of the file *name*, with `$` before what is to be filled in."""
    return Template((files(__name__) / f"{name}.tmpl").read_text("utf-8"))
