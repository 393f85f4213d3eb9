"""Declarations of the fields of health: meaning, source and metrics of each, in one place.

A declaration is a field of a dataclass: reader and metrics walk the declarations, checks and pages
use the attributes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

_T = TypeVar("_T")

#: The values of the labels, and the number; samples without one are left out.
Samples = Iterable[tuple[tuple[str, ...], float | None]]
#: A number from the value of a field and the Redis server's time.
Number = Callable[[Any, float], float | None]

_METADATA = "declaration"


@dataclass(frozen=True)
class HealthMetric:
    """A metric that shows a field.

    Attributes:
        name: its name; a counter gets `_total` after it.
        help: its meaning; empty: that of the field.
        samples: from the field's value and the Redis server's time; None leaves the metric out.
        labels: the names of its labels; those of an agent have `agent` before them.
        counts: whether it is a counter, else a gauge.
    """

    name: str
    help: str
    samples: Callable[[Any, float], Samples | None]
    labels: tuple[str, ...] = ()
    counts: bool = False


@dataclass(frozen=True)
class Declaration:
    """The declaration of a field.

    Attributes:
        meaning: what its value is.
        source: where the reader finds its value; None where it passes the value itself.
        group: the class with the declarations of its parts, if it has any.
    """

    meaning: str
    source: Any = None
    metrics: tuple[HealthMetric, ...] = ()
    group: type[Any] | None = None


def declare(meaning: str, source: object = None, *metrics: HealthMetric) -> Any:
    """Declare a field."""
    complete = tuple(replace(metric, help=metric.help or meaning) for metric in metrics)
    return dataclasses.field(metadata={_METADATA: Declaration(meaning, source, complete)})


def group(fields: type[Any]) -> Any:
    """Declare a field that holds the fields of a group."""
    meaning = (fields.__doc__ or "").partition("\n")[0]
    return dataclasses.field(metadata={_METADATA: Declaration(meaning, group=fields)})


@dataclass_transform(frozen_default=True, field_specifiers=(declare, group))
def health_fields(cls: type[_T]) -> type[_T]:
    """Make *cls* a frozen dataclass of declared fields."""
    declared: Any = dataclass(frozen=True)(cls)
    declared.declarations = {it.name: it.metadata[_METADATA] for it in dataclasses.fields(declared)}
    complete: type[_T] = declared
    return complete


def declarations(cls: type[Any]) -> Mapping[str, Declaration]:
    """The declarations of a class, by field."""
    by_field: Mapping[str, Declaration] = cls.declarations
    return by_field


def leaves(cls: type[Any], path: str = "") -> Iterator[tuple[Callable[[Any], Any], Declaration]]:
    """The declarations of a class and of its groups, each with the function that gets its value."""
    for name, declaration in declarations(cls).items():
        if declaration.group is None:
            yield attrgetter(path + name), declaration
        else:
            yield from leaves(declaration.group, f"{path}{name}.")


def build(cls: type[_T], read: Callable[[Any], Any]) -> _T:
    """An object of a class, whose values *read* gets from the source of each field."""
    values = {
        name: read(declaration.source)
        if declaration.group is None
        else build(declaration.group, read)
        for name, declaration in declarations(cls).items()
    }
    return cls(**values)


# Metrics


def _identity(value: Any, now: float) -> Any:
    return value


def gauge(name: str, help: str = "", number: Number = _identity) -> HealthMetric:
    """A gauge with one sample."""
    return HealthMetric(name, help, lambda value, now: [((), number(value, now))])


def gauge_of_kind(name: str, help: str, kind: str, number: Number = _identity) -> HealthMetric:
    """The sample of one *kind* of a gauge that several fields share."""
    return HealthMetric(name, help, lambda value, now: [((kind,), number(value, now))], ("kind",))


def counter(name: str, help: str = "") -> HealthMetric:
    """A counter with one sample."""
    return HealthMetric(name, help, lambda value, _: [((), value)], counts=True)


def counter_by(label: str, name: str, help: str = "", only: str = "") -> HealthMetric:
    """A counter by one label, from a mapping; *only* those whose key has that prefix."""
    return HealthMetric(
        name,
        help,
        lambda counts, _: [
            ((key.removeprefix(only),), count)
            for key, count in counts.items()
            if key.startswith(only)
        ],
        (label,),
        counts=True,
    )


def is_set(value: object, now: float) -> float:
    """1 if there is a value."""
    return float(value is not None)


def seconds_since(since: float | None, now: float) -> float:
    """The age; 0 without a beginning, and while the clocks differ."""
    return 0.0 if since is None else max(0.0, now - since)


def seconds_until(at: float | None, now: float) -> float | None:
    """The seconds until a time; below 0: it has passed."""
    return None if at is None else at - now
