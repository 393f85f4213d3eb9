"""The class that plugin authors derive from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, SecretBytes, SecretStr, ValidationError

from boyd.errors import PluginError
from boyd.models import Catalog
from boyd.plugin.components import Component
from boyd.plugin.context import Context
from boyd.redaction import register
from boyd.settings.validation import mistakes


def secrets_in(value: Any) -> Iterator[str]:
    """The texts of all `SecretStr` and `SecretBytes` in a value, however deep."""
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, SecretBytes):
        yield value.get_secret_value().decode("utf-8", "replace")
    elif isinstance(value, BaseModel):
        yield from secrets_in(dict(value))
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from secrets_in(one)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for one in value:
            yield from secrets_in(one)


class Plugin:
    """A named set of observers, orienters, strategies, actions and hooks.

    A plugin object lives on every worker: nothing may depend on its memory surviving from one
    iteration to the next. Whoever needs memory uses `ctx.state`.
    """

    class Options(BaseModel):
        """The plugin's options; an unknown one is an error."""

        model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = ""
    #: Whether it is of no use to an agent without a model, which then cannot be built with it.
    needs_llm: bool = False
    #: Components written as classes; those declared by decorators need not be listed.
    components: Sequence[Component] = ()
    options: Any

    def __init__(self, **options: Any) -> None:
        """Check the options.

        Raises:
            PluginError: an option is unknown or its value does not fit.
        """
        kind = type(self).Options
        try:
            self.options = kind(**options)
        except ValidationError as error:
            raise PluginError(self.id or type(self).__name__, mistakes(error, kind)) from None
        # What fails may quote them, as a request that failed quotes its URL.
        register(*secrets_in(self.options))

    def init(self, ctx: Context) -> None:
        """Prepare for work, once in every process; raising keeps the agent from starting."""

    def misfits(self, catalog: Catalog) -> Iterable[str]:
        """What of the options does not fit what the agent has, as its *catalog* lists it.

        `boyd check` tells it before an agent is started. Whoever cannot work with it raises in
        `init` as well.
        """
        return ()

    def playbooks(self, ctx: Context) -> Iterable[str]:
        """What models are told when it fits: Markdown with settings in front, as in a folder.

        Asked for whenever a model is told playbooks, so it may change.
        """
        return ()
