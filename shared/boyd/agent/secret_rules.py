"""Decides which secrets an action may use: those that the agent file names in just that call.

Anybody who may call an action chooses its parameters. So a reference among them counts only if the
agent file itself has written it there, in a rule or a step of a procedure, or if a rule in
`secrets` permits that action to use that secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from boyd.agent.procedure_plans import acting
from boyd.errors import ConfigError
from boyd.models import JsonObject
from boyd.plugin import Action, PluginHost, Procedure
from boyd.settings.permissions import SecretRule
from boyd.settings.secret_references import SecretReference, places_in, provider_problem
from boyd.text.references import parse_reference

#: Stands for whatever has written params that were checked when the action was decided on.
CHECKED = "*"

#: A dotted path in params, and the reference there.
Place = tuple[str, str]


class SecretRules:
    """Decides which secrets the actions of one agent may use."""

    def __init__(self, rules: Sequence[SecretRule], host: PluginHost) -> None:
        """Collect what the agent file and its plugins write.

        Raises:
            ConfigError: a text there begins like a reference, but is none.
        """
        self._rules = rules
        self._host = host
        self._templates = [
            (strategy.id, template)
            for strategy in host.strategies.values()
            for template in strategy.templates
        ]
        for action in host.actions.values():
            if isinstance(action, Procedure):
                self._templates += [(action.id, step) for step in acting(action.steps)]
        for text in self._references():
            try:
                SecretReference.parse(text)
            except ValueError as error:
                raise ConfigError(str(error)) from None

    def refusal(
        self, action: Action, params: JsonObject, valid: JsonObject, writer: str
    ) -> str | None:
        """Return why the action may not use a secret that its params name, if so.

        *params* are as they were decided on, *valid* as they will be executed. *writer* is the
        strategy or procedure that has written them; empty: a client or a model.
        """
        places, target = set(places_in(valid)), action.target_of(valid)
        for _, text in places:
            try:
                SecretReference.parse(text)
            except ValueError as error:
                return str(error)
        rest = {
            (path, text)
            for path, text in places
            if not any(rule.permits(text, action.id, path, target) for rule in self._rules)
        }
        if not rest or self._has_written(writer, action.id, params, rest):
            return None
        path, text = min(rest)
        return (
            f"{action.id} may not use {text} as {path} in this call: only what the agent file "
            "writes in a rule or a step is used, and what its table [[secrets]] permits"
        )

    def options(self, plugin_id: str) -> list[str]:
        """The references in the options of a plugin, without those in params that it writes."""
        params = [step.params for by, step in self._templates if by.startswith(f"{plugin_id}:")]
        written = {text for _, text in places_in(params)}
        texts = [text for _, text in places_in(self._host.plugins[plugin_id].options)]
        return [text for text in dict.fromkeys(texts) if text not in written]

    def problems(self) -> Iterator[str]:
        """Yield the references for which this process has no provider, each once."""
        for text in dict.fromkeys(self._references()):
            if problem := provider_problem(SecretReference.parse(text)):
                yield problem

    def _references(self) -> Iterator[str]:
        options = [plugin.options for plugin in self._host.plugins.values()]
        yield from (text for _, text in places_in(options))
        yield from (text for _, step in self._templates for _, text in places_in(step.params))

    def _has_written(
        self, writer: str, action: str, params: JsonObject, places: AbstractSet[Place]
    ) -> bool:
        for by, step in self._templates:
            if step.action == action and writer in (by, CHECKED):
                whole = writer == CHECKED or _is_filled(step.params, params)
                if whole and places <= set(places_in(step.params)):
                    return True
        return False


def _is_filled(template: Any, value: Any) -> bool:
    """Report whether *value* is the template with a value for each `${…}`."""
    if isinstance(template, str) and parse_reference(template):
        return True
    if isinstance(template, Mapping) and isinstance(value, Mapping):
        return template.keys() == value.keys() and all(
            _is_filled(item, value[name]) for name, item in template.items()
        )
    if isinstance(template, list) and isinstance(value, list):
        return len(template) == len(value) and all(map(_is_filled, template, value))
    return bool(template == value)
