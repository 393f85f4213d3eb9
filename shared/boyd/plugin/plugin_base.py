"""The class that plugin authors derive from."""

from __future__ import annotations

import os
import sys
from abc import ABCMeta
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    SecretBytes,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from boyd.errors import ConfigError, PluginError
from boyd.models import ApprovalItem, Catalog, NotificationRecipient, NotificationStage
from boyd.plugin.components import Component
from boyd.plugin.context import Context
from boyd.plugin.decorators import Declared
from boyd.settings.secret_references import SCHEME, SecretReference, read_secret
from boyd.settings.validation import mistakes, read_text
from boyd.text.redaction import register


def secrets_in(value: Any) -> Iterator[str]:
    """All `SecretStr` and `SecretBytes` nested in a value, as text, but not what is a reference."""
    if isinstance(value, SecretStr):
        text = value.get_secret_value()
        yield from [] if text.startswith(SCHEME) else [text]
    elif isinstance(value, SecretBytes):
        yield value.get_secret_value().decode("utf-8", "replace")
    elif isinstance(value, BaseModel):
        yield from secrets_in(dict(value))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from secrets_in(item)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from secrets_in(item)


class _Body(dict[str, Any]):
    """The names in the body of a plugin class; components and hooks are not replaced unnoticed."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self and (isinstance(self[name], Declared) or name.startswith("on_")):
            raise TypeError(
                f"two methods are named {name!r}, and the second one replaces the first: "
                "give it another name"
            )
        super().__setitem__(name, value)


class _PluginType(ABCMeta):
    """The type of plugin classes; also that of abstract ones."""

    @classmethod
    def __prepare__(cls, _name: str, _bases: tuple[type, ...], /, **_: Any) -> _Body:
        return _Body()

    def __new__(
        cls, name: str, bases: tuple[type, ...], body: dict[str, Any], /, **settings: Any
    ) -> _PluginType:
        # As `type` does it: what is made without a class statement is of the module of its caller.
        caller = sys._getframe(1)  # noqa: SLF001
        body.setdefault("__module__", caller.f_globals["__name__"])
        return super().__new__(cls, name, bases, body, **settings)


class Plugin(metaclass=_PluginType):
    """A named set of observers, orienters, strategies, actions and hooks.

    Every worker has its own plugin object, so keep state between iterations in `ctx.state`.
    """

    class Options(BaseModel):
        """The plugin's options; an unknown one is an error."""

        model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = ""
    #: Its version, for records of iterations; absent: that of its package, or a digest of its file.
    version: str = ""
    #: Whether the agent must have a model.
    needs_llm: bool = False
    #: A digest of what it has read besides its options, equal on workers that run the same agent.
    digest: str = ""
    #: Components written as classes; decorated methods are found automatically.
    components: Sequence[Component] = ()
    options: Any

    def __init__(self, **options: Any) -> None:
        """Check the options.

        Raises:
            PluginError: an option is unknown or invalid.
        """
        kind = type(self).Options
        try:
            self.options = kind(**options)
        except ValidationError as error:
            raise PluginError(self.id or type(self).__name__, mistakes(error, kind)) from None
        # Errors may quote options, as a failed request quotes its URL.
        register(*secrets_in(self.options))

    def use_folder(self, folder: Path) -> None:
        """Take the *folder* of the agent file, before the plugin's components are read."""

    def init(self, ctx: Context) -> None:
        """Prepare for work, once per process; an error keeps the agent from starting."""

    def misfits(self, catalog: Catalog) -> Iterable[str]:
        """Report options that do not match the agent's *catalog*; `boyd check` shows them.

        A plugin that cannot work with such options also raises in `init`.
        """
        return ()

    def observer_options(self) -> str:
        """The options that its observations depend on, as a text; by default all.

        A replay cannot tell what would have been observed under others, so leave out those that
        only orienters and strategies use.
        """
        text: str = self.options.model_dump_json(fallback=lambda value: type(value).__qualname__)
        return text

    def offers(self, action: str) -> bool:
        """Report whether the agent has the action that the method *action* declares."""
        return True

    def component_queue(self) -> str | None:
        """Return the queue of the workers that run its components, unless these name one."""
        return None

    def notification_recipients(
        self, approval: ApprovalItem, stage: NotificationStage, ctx: Context
    ) -> Iterable[NotificationRecipient]:
        """The recipients to call `on_approval` for; by default one.

        There may be 1000. Called when the stage begins, and before each attempt; one that is no
        longer among them is skipped.
        """
        return (NotificationRecipient(id="", group="", kind=self.id),)

    def escalation_recipients(
        self, approval: ApprovalItem, ctx: Context
    ) -> Iterable[NotificationRecipient]:
        """The recipients of the stage `escalated`, each with its time as `not_before`.

        They are notified then, unless somebody has acknowledged or answered the approval. Called
        like `notification_recipients`.
        """
        return ()

    def playbooks(self, ctx: Context) -> Iterable[str]:
        """Playbooks for models: Markdown with front matter, as in a folder of playbooks.

        Called whenever playbooks are selected, so the result may change.
        """
        return ()


class Secret(BaseModel):
    """A secret in a file or an environment variable, or a reference, read whenever it is used.

    Only the workers that use it need to have it, and a new one counts at once.

    Attributes:
        file: the path of the file.
        env: the name of the variable.
        ref: the reference, such as `secret://vault/db#password`; a text alone is one, too.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    file: Path | None = None
    env: str | None = None
    ref: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _text(cls, value: object) -> object:
        return {"ref": value} if isinstance(value, str) else value

    @field_validator("ref")
    @classmethod
    def _readable(cls, ref: str | None) -> str | None:
        return ref and SecretReference.parse(ref).text

    @model_validator(mode="after")
    def _one(self) -> Self:
        if [self.file, self.env, self.ref].count(None) != 2:
            raise ValueError("needs one of `file`, `env` and `ref`")
        return self

    def read(self) -> str:
        """The secret, without white space around it; errors and logs will not show it.

        Raises:
            ConfigError: the file cannot be read, there is no such variable, or the provider does
                not give it.
        """
        if self.ref is not None:
            return read_secret(self.ref).strip()
        text = self._look_up()
        if not text:
            raise ConfigError(f"{self.file or self.env}: holds no secret on this worker")
        register(text)
        return text

    def _look_up(self) -> str:
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
            queue: the queue of the workers that reach the system; by default any worker.
            samples: how many checks in a row something must be bad before it is reported.
            max_items: the most things in trouble that are observed of each kind.
            actions: the actions to enable, each with its own credentials.
        """

    @classmethod
    def enabling_option(cls, action: str) -> str:
        """The option that enables the method *action*."""
        return f"actions.{action}"

    def offers(self, action: str) -> bool:
        """Report whether the options enable the method *action*."""
        return getattr(self.options.actions, action) is not None

    def component_queue(self) -> str | None:
        """The option `queue`, if there is one."""
        return getattr(self.options, "queue", None)

    def access_of(self, action: str, default: Any) -> Any:
        """The credentials of *action*; those for reading, *default*, if its table has none."""
        own = getattr(self.options.actions, action)
        return own if own.model_fields_set & type(default).model_fields.keys() else default
