"""An option of a plugin, and the values that a sweep tries: `rules:busy.above=70..95:5`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from boyd.agent import Agent, load_agent
from boyd.errors import BoydError, ConfigError
from boyd.models.base import JsonObject
from boyd.settings.validation import nearest

_NUMBER = r"-?\d+(?:\.\d+)?"
_SWEEP = re.compile(
    rf"(?P<plugin>[^:=]+):(?P<path>[^=]+)="
    rf"(?P<low>{_NUMBER})\.\.(?P<high>{_NUMBER})(?::(?P<step>{_NUMBER}))?",
    re.ASCII,
)
#: The number of steps without one, and the most values.
_STEPS, MOST = 10, 100
#: The fields by which a path names an element of a list.
_NAMES = ("name", "id")


@dataclass(frozen=True)
class SweptOption:
    """An option of a plugin by its path, and the values to try.

    Attributes:
        text: plugin and path, as they were typed.
        plugin: the id of the plugin.
        path: fields of its options; an element of a list goes by its number, `name` or `id`.
        values: in order.
    """

    text: str
    plugin: str
    path: tuple[str, ...]
    values: tuple[float, ...]

    def options(self, agent: Agent, value: float) -> dict[str, JsonObject]:
        """The options of the plugin that have another *value* there.

        Raises:
            ConfigError: the agent has no such plugin or option, or that is no number.
        """
        holder, name, top = self._locate(agent)
        is_whole = isinstance(holder[name], int) and value.is_integer()
        holder[name] = int(value) if is_whole else value
        return {self.plugin: top}

    def present(self, agent: Agent) -> float | None:
        """The value that the option has in *agent*; None if it has none.

        Raises:
            ConfigError: as `options`.
        """
        holder, name, _ = self._locate(agent)
        return None if holder[name] is None else float(holder[name])

    def check(self, reference: str, agent: Agent) -> None:
        """Load the agent with each value, as `boyd check` does.

        Raises:
            ConfigError: a value is refused.
        """
        for value in self.values:
            options = self.options(agent, value)
            try:
                changed = load_agent(reference, None, options)
                for plugin in changed.host.plugins.values():
                    for misfit in plugin.misfits(changed.host.catalog):
                        raise ConfigError(f"plugin {plugin.id}: {misfit}")
            except BoydError as error:
                raise ConfigError(f"--sweep: {self.text}={value:g} is refused: {error}") from None

    def _locate(self, agent: Agent) -> tuple[Any, Any, JsonObject]:
        """The holder of the option, its name there, and the options of the plugin to change."""
        plugin = agent.host.plugins.get(self.plugin)
        if plugin is None:
            close = nearest(self.plugin, agent.host.plugins)
            raise ConfigError(f"--sweep: agent {agent.id} has no plugin {self.plugin!r}{close}")
        everything: JsonObject = plugin.options.model_dump(mode="json")
        path = self._whole_path(everything)
        holder: Any = everything
        for part in path[:-1]:
            holder = holder[_key(holder, part, self.text)]
        name = _key(holder, path[-1], self.text)
        value = holder[name]
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            kind = "a table" if isinstance(value, Mapping) else f"{value!r}"
            raise ConfigError(f"--sweep: {self.text} is {kind}, not a number")
        return holder, name, {path[0]: everything[path[0]]}

    def _whole_path(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """The path; the list that holds its first element may be left out."""
        first = self.path[0]
        if first in options:
            return self.path
        lists = [
            name
            for name, value in options.items()
            if isinstance(value, list) and any(_is_named(element, first) for element in value)
        ]
        if len(lists) != 1:
            names = [name for value in options.values() for name in _names_in(value)]
            close = nearest(first, [*options, *names])
            raise ConfigError(f"--sweep: plugin {self.plugin} has no option {first!r}{close}")
        return (lists[0], *self.path)


def parse_sweep(text: str) -> SweptOption:
    """Parse `PLUGIN:PATH=LOW..HIGH`, with `:STEP` if it is not a tenth of the range.

    Raises:
        ValueError: the text has another form, or gives no values, or too many.
    """
    parts = _SWEEP.fullmatch(text.strip())
    if parts is None:
        raise ValueError(
            f"{text!r} is no sweep: write PLUGIN:OPTION=LOW..HIGH or PLUGIN:OPTION=LOW..HIGH:STEP, "
            "as in rules:busy.above=70..95:5"
        )
    low, high = float(parts["low"]), float(parts["high"])
    if low >= high:
        raise ValueError(f"{parts['low']}..{parts['high']} is empty: the lower value comes first")
    step = float(parts["step"]) if parts["step"] else (high - low) / _STEPS
    if step <= 0:
        raise ValueError(f"the step {parts['step']} is not above 0")
    count = math.floor((high - low) / step + 1e-9) + 1
    if not 2 <= count <= MOST:
        raise ValueError(
            f"the step {step:g} gives {count} values from {low:g} to {high:g}: choose one that "
            f"gives 2 to {MOST}"
        )
    # Rounded, so that steps of a tenth add up to what people write.
    values = tuple(round(low + number * step, 9) for number in range(count))
    return SweptOption(
        f"{parts['plugin']}:{parts['path']}",
        parts["plugin"].strip(),
        tuple(part.strip() for part in parts["path"].split(".")),
        values,
    )


def _key(holder: Any, part: str, text: str) -> Any:
    """The key of a part of a path in a table or list."""
    if isinstance(holder, Mapping) and part in holder:
        return part
    if isinstance(holder, list):
        if part.isdecimal() and int(part) < len(holder):
            return int(part)
        numbers = [number for number, item in enumerate(holder) if _is_named(item, part)]
        if len(numbers) == 1:
            return numbers[0]
        close = nearest(part, _names_in(holder))
        raise ConfigError(f"--sweep: {text}: there is no {part!r}{close}")
    close = nearest(part, holder) if isinstance(holder, Mapping) else ""
    raise ConfigError(f"--sweep: {text}: there is no {part!r}{close}")


def _names_in(elements: object) -> list[str]:
    """The names of the elements of a list; none if it is not a list of tables."""
    tables = elements if isinstance(elements, list) else []
    values = (item.get(name) for item in tables if isinstance(item, Mapping) for name in _NAMES)
    return [value for value in values if isinstance(value, str)]


def _is_named(element: object, name: str) -> bool:
    return isinstance(element, Mapping) and name in (element.get(key) for key in _NAMES)
