"""The base of plugins that ask a model: their prompts contain matching playbooks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from boyd.errors import ConfigError
from boyd.models import Observation
from boyd.plugin import Context, Plugin

if TYPE_CHECKING:
    from boyd.llm.playbook import Playbook


#: The most characters of all playbooks in a prompt.
LIMIT = 12_000

_INTRO = """\
Playbooks for similar situations: written by the operators of these systems, or recorded from past
incidents, in the words of what was observed. They may not apply: verify their statements before
you rely on them."""


class PlaybookReader(Plugin):
    """Reads playbooks from a folder and from other plugins."""

    needs_llm = True

    class Options(Plugin.Options):
        """Options about the prompt.

        Attributes:
            instructions: additional instructions for the model.
            enable_playbooks: include matching playbooks in the instructions.
            playbooks: the folder of the playbooks.
        """

        instructions: str = Field(default="", max_length=20_000)
        enable_playbooks: bool = True
        playbooks: Path | None = None

    options: Options

    def init(self, ctx: Context) -> None:
        """Log playbooks that cannot be read."""
        self._load(ctx)

    def playbook_section(
        self, observations: Sequence[Observation], phase: Literal["orient", "decide"], ctx: Context
    ) -> str:
        """The prompt section with the matching playbooks; empty without any."""
        playbooks = self._load(ctx)
        if not playbooks:
            return ""
        from boyd.llm.playbook import match, section

        fit = match(playbooks, observations, phase)
        return f"{_INTRO}\n\n{section(fit, LIMIT)}" if fit else ""

    def _load(self, ctx: Context) -> list[Playbook]:
        """The playbooks of the folder and of plugins; unreadable ones are logged and skipped."""
        if not self.options.enable_playbooks:
            return []
        # Imported late: agents without playbooks do not need the model loop.
        from boyd.llm.playbook import load_folder, parse

        folder = self.options.playbooks
        playbooks, warnings = load_folder(folder) if folder else ([], [])
        ids = {playbook.id for playbook in playbooks}
        for plugin_id, texts in ctx.playbooks().items():
            for number, text in enumerate(texts, 1):
                try:
                    playbook = parse(text, f"{plugin_id}-{number}.md")
                except ConfigError as error:
                    warnings.append(str(error))
                    continue
                if playbook.id not in ids:
                    ids.add(playbook.id)
                    playbooks.append(playbook)
        for warning in warnings:
            ctx.logger.warning("playbook skipped: %s", warning)
        return playbooks
