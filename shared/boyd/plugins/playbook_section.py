"""Playbooks for plugins that ask a model: from a folder and from other plugins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from boyd.errors import ConfigError
from boyd.models import Observation
from boyd.plugin import Context

if TYPE_CHECKING:
    from boyd.llm.playbook import Playbook

#: The most characters of all playbooks in a prompt.
LIMIT = 12_000

_INTRO = """\
Playbooks written by the operators of these systems for similar situations. They may not apply:
verify their statements before you rely on them."""


def load(folder: Path | None, ctx: Context) -> list[Playbook]:
    """The playbooks of *folder* and of plugins; unreadable ones are logged and skipped."""
    # Imported late: agents without playbooks do not need the model loop.
    from boyd.llm.playbook import load_folder, parse

    found, warnings = load_folder(folder) if folder else ([], [])
    known = {one.id for one in found}
    for plugin_id, texts in ctx.playbooks().items():
        for number, text in enumerate(texts, 1):
            try:
                one = parse(text, f"{plugin_id}-{number}.md")
            except ConfigError as error:
                warnings.append(str(error))
                continue
            if one.id not in known:
                known.add(one.id)
                found.append(one)
    for warning in warnings:
        ctx.logger.warning("playbook skipped: %s", warning)
    return found


def prompt_section(
    enabled: bool,
    folder: Path | None,
    observations: Sequence[Observation],
    phase: Literal["orient", "decide"],
    ctx: Context,
) -> str:
    """The prompt section with the matching playbooks; empty without any."""
    known = load(folder, ctx) if enabled else []
    if not known:
        return ""
    from boyd.llm.playbook import match, section

    fit = match(known, observations, phase)
    return f"{_INTRO}\n\n{section(fit, LIMIT)}" if fit else ""
