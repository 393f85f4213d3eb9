"""What the observers of an iteration saw, in a few lines for each of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from boyd.cli import output
from boyd.counting import counted
from boyd.models import SEVERITIES, LoopResult, Observation, ObserverRun

#: Observations of one observer that are shown with their data; of more, the worst ones.
_SHOWN = 5
#: Values of an observation's data that are shown, and characters of each.
_VALUES = 8
_VALUE = 60
#: Hosts that are named in one line.
_HOSTS = 5
_WORST_FIRST = tuple(reversed(SEVERITIES))


def observation_lines(result: LoopResult, width: int) -> Iterator[str]:
    """The observations by observer, then those that nobody but runs, intake and hooks made."""
    rest = list(result.observations)
    for observer, group in groupby(result.observer_runs, key=lambda run: run.id):
        runs = list(group)
        count = sum(run.observations for run in runs)
        seen, rest = rest[:count], rest[count:]
        yield from _block(_title(observer, runs, seen), seen, width)
    if rest:
        by = "from runs, intake and hooks" if result.observer_runs else "all"
        yield from _block(f"{by}: {_counted(rest)}", rest, width)
    if result.not_due:
        yield f"not due: {', '.join(_waits(result))}"
    elif not result.observer_runs and not result.observations:
        yield "none"


def _block(title: str, seen: Sequence[Observation], width: int) -> Iterator[str]:
    yield output.cut(output.one_line(title), width)
    for line in _shown(seen):
        yield f"  {output.cut(output.one_line(line), width - 2)}"


def _title(name: str, runs: Sequence[ObserverRun], seen: Sequence[Observation]) -> str:
    times = f"{len(runs)} runs " if len(runs) > 1 else ""
    return f"{name}: {_counted(seen)}; {times}on {_hosts(runs)}, {_took(runs)}"


def _hosts(runs: Sequence[ObserverRun]) -> str:
    names = sorted({run.host for run in runs})
    more = f" and {len(names) - _HOSTS} more" if len(names) > _HOSTS else ""
    return ", ".join(names[:_HOSTS]) + more


def _took(runs: Sequence[ObserverRun]) -> str:
    least, most = (output.duration(f(run.duration for run in runs)) for f in (min, max))
    return most if least == most else f"{least} to {most}"


def _counted(seen: Sequence[Observation]) -> str:
    """How many there are, and of which severity."""
    counts: Counter[str] = Counter(one.severity or "unrated" for one in seen)
    told = [f"{counts[level]} {level}" for level in (*_WORST_FIRST, "unrated") if counts[level]]
    text = counted(len(seen), "observation")
    return f"{text} ({', '.join(told)})" if told else text


def _shown(seen: Sequence[Observation]) -> Iterator[str]:
    """The worst with their data, and the others in one line."""
    ordered = sorted(seen, key=_rank)
    # One line that stands for many says more than a few of them that are all alike.
    alike = len(seen) > _SHOWN and len({one.severity for one in seen}) == 1
    first = [] if alike else ordered[:_SHOWN]
    for one in first:
        data = _data(one.data)
        yield f"{one.severity or 'unrated'} {one.source}{f': {data}' if data else ''}"
    others = ordered[len(first) :]
    if others:
        ranges = ", ".join(_ranges(others))
        how = f"{len(others)} more" if first else f"all {len(others)}"
        yield f"{how}: {_sources(others)}{f'; {ranges}' if ranges else ''}"


def _rank(one: Observation) -> int:
    return _WORST_FIRST.index(one.severity) if one.severity else len(_WORST_FIRST)


def _sources(seen: Sequence[Observation]) -> str:
    sources = list(dict.fromkeys(one.source for one in seen))
    return sources[0] if len(sources) == 1 else f"{sources[0]} to {sources[-1]}"


def _ranges(seen: Sequence[Observation]) -> Iterator[str]:
    """From where to where the numbers go that all of them have."""
    for name in list(seen[0].data)[:_VALUES]:
        values = [one.data.get(name) for one in seen]
        numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
        if len(numbers) == len(values):
            least, most = min(numbers), max(numbers)
            yield f"{name} {least:g}" if least == most else f"{name} {least:g} to {most:g}"


def _data(data: Mapping[str, Any]) -> str:
    told = [f"{name}={_value(value)}" for name, value in list(data.items())[:_VALUES]]
    more = [f"and {len(data) - _VALUES} more"] if len(data) > _VALUES else []
    return " ".join([*told, *more])


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return output.cut(output.one_line(text), _VALUE)


def _waits(result: LoopResult) -> Iterator[str]:
    for one in result.not_due:
        left = (one.due_at - result.started_at).total_seconds()
        yield f"{one.id} (in {output.seconds(max(1, round(left)))})"
