"""Playbooks for plugins that ask a model: of a folder and of plugins, read when needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from boyd.errors import ConfigError
from boyd.models import Observation
from boyd.plugin import Context

if TYPE_CHECKING:
    from boyd.llm.playbooks import Playbook

#: Characters that all playbooks together may have in a prompt.
LIMIT = 12_000

_INTRO = """\
Playbooks of the people who look after these systems, for situations like this one. They may not
fit: check what they say before you rely on it."""


def load(folder: Path | None, ctx: Context) -> list[Playbook]:
    """The playbooks of *folder* and of plugins; what cannot be read is logged and left out."""
    # Where no playbooks are used, nothing of the model loop is imported.
    from boyd.llm import playbooks

    found, warnings = playbooks.load_folder(folder) if folder else ([], [])
    known = {one.id for one in found}
    for plugin_id, texts in ctx.playbooks().items():
        for number, text in enumerate(texts, 1):
            try:
                one = playbooks.parse(text, f"{plugin_id}-{number}.md")
            except ConfigError as error:
                warnings.append(str(error))
                continue
            if one.id not in known:
                known.add(one.id)
                found.append(one)
    for warning in warnings:
        ctx.logger.warning("playbook left out: %s", warning)
    return found


def told(
    enabled: bool,
    folder: Path | None,
    observations: Sequence[Observation],
    phase: Literal["orient", "decide"],
    ctx: Context,
) -> str:
    """What a model is told of the playbooks that fit; empty when none does."""
    known = load(folder, ctx) if enabled else []
    if not known:
        return ""
    from boyd.llm import playbooks

    fit = playbooks.match(known, observations, phase)
    return f"{_INTRO}\n\n{playbooks.section(fit, LIMIT)}" if fit else ""
