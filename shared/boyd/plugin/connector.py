"""The base of plugins that connect to another system: they only read, unless options say more."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, model_validator

from boyd.errors import ConfigError
from boyd.plugin.plugin_base import Plugin
from boyd.settings.text_files import read_text
from boyd.text.redaction import register


class Secret(BaseModel):
    """A secret in a file or an environment variable, read whenever it is used.

    Only the workers that use it need to have it, and a new one counts at once.

    Attributes:
        file: the path of the file.
        env: the name of the variable.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: Path | None = None
    env: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.file is None) == (self.env is None):
            raise ValueError("needs either `file` or `env`")
        return self

    def read(self) -> str:
        """The secret, without white space around it; errors and logs will not show it.

        Raises:
            ConfigError: the file cannot be read, or there is no such variable.
        """
        found = self._found()
        if not found:
            raise ConfigError(f"{self.file or self.env}: holds no secret on this worker")
        register(found)
        return found

    def _found(self) -> str:
        if self.file is None:
            return os.environ.get(self.env or "", "").strip()
        return read_text(self.file).strip()


class Connector(Plugin):
    """A plugin for another system. Its actions exist only if its options enable them.

    `Options.actions` is a model with an optional field for each action, named like its method. Set,
    it enables the action, and it holds what only this action needs, such as its credentials:

        class Actions(BaseModel):
            restart: HttpAccess | None = None

        class Options(Connector.Options):
            url: str
            actions: Actions = Actions()

    In the agent file, `[plugins.options.actions.restart]` enables it. An option `queue` names the
    workers that reach the system, for all components but observers of every host.
    """

    class Options(Plugin.Options):
        """Options that several connectors have.

        Attributes:
            access: the credentials to read with.
            interval: seconds between checks in continuous mode.
            timeout: seconds that one request may take.
            queue: the queue of the workers that reach the system; None: any worker.
            samples: how many checks in a row something must be bad before it is reported.
            max_items: the most things in trouble that are observed of each kind.
            actions: the actions to enable, each with its own credentials.
        """

    @classmethod
    def enabling_option(cls, action: str) -> str:
        """The option that enables the method *action*."""
        return f"actions.{action}"

    def offers(self, action: str) -> bool:
        """Tell whether the options enable the method *action*."""
        return getattr(self.options.actions, action) is not None

    def component_queue(self) -> str | None:
        """The option `queue`, if there is one."""
        return getattr(self.options, "queue", None)

    def access_of(self, action: str, default: Any) -> Any:
        """The credentials of *action*; those for reading, *default*, if its table has none."""
        own = getattr(self.options.actions, action)
        return own if own.model_fields_set & type(default).model_fields.keys() else default
