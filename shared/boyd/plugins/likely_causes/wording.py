"""The reasons for a ranking, in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from boyd.plugins.likely_causes.calibration import percent
from boyd.plugins.likely_causes.episode import FaultEpisode
from boyd.plugins.likely_causes.ranking import Ranking, Suspect
from boyd.text.formatting import seconds

#: The most names in a list.
_NAMED = 3


def findings(ranking: Ranking, episode: FaultEpisode, probability: float | None) -> list[str]:
    """The findings of a ranking, for people; none if there is but one suspect."""
    suspects = ranking.suspects
    if len(suspects) < 2:
        return []
    if ranking.doubt:
        return [f"no likely cause: {ranking.doubt}", f"suspects: {listing(_names(suspects))}"]
    chance = f" ({percent(probability)})" if probability is not None else ""
    best = suspects[0]
    return [
        f"{best.name} is the likely cause{chance}: {reasons(best, suspects, episode)}",
        f"other suspects: {listing(_names(suspects[1:]))}",
    ]


def reasons(best: Suspect, suspects: Sequence[Suspect], episode: FaultEpisode) -> str:
    """The reasons for a suspect, in one line."""
    return "; ".join(_reasons(best, suspects, episode))


def _reasons(best: Suspect, suspects: Sequence[Suspect], episode: FaultEpisode) -> Iterator[str]:
    others = best.explains or [suspect.name for suspect in suspects if suspect is not best]
    verb = "depends" if len(others) == 1 else "depend"
    relation = f", which {verb} on it" if best.explains else ""
    yield f"it deteriorated {_order(best.name, others, episode)}{relation}"
    yield from _beneath(best)
    related = {best.name, *best.explains, *best.beneath}
    strangers = [suspect.name for suspect in suspects if suspect.name not in related]
    if best.explains and strangers:
        verb = "does" if len(strangers) == 1 else "do"
        yield f"{listing(strangers)} {verb} not depend on it"
    if episode.is_well(best.name):
        since = episode.at - episode.things[best.name].last
        yield f"it has not been seen unwell for {seconds(round(since))}"


def _beneath(best: Suspect) -> Iterator[str]:
    if best.beneath:
        verb = "is" if len(best.beneath) == 1 else "are"
        yield f"it depends on {listing(best.beneath)}, which {verb} unwell, too"
    elif best.needs:
        yield "nothing that it depends on is unwell"
    elif best.explains:
        yield "it has no known dependencies"


def _order(best: str, others: Sequence[str], episode: FaultEpisode) -> str:
    """When *best* became unwell, by what began later, at the same time or earlier."""
    lags = {name: round(episode.things[name].onset - episode.things[best].onset) for name in others}
    groups = {
        "before": [name for name in others if lags[name] > 0],
        "together with": [name for name in others if lags[name] == 0],
        "after": [name for name in others if lags[name] < 0],
    }
    return " and ".join(
        f"{_span({abs(lags[name]) for name in names})}{word} {listing(names)}"
        for word, names in groups.items()
        if names
    )


def _span(lags: set[int]) -> str:
    texts = [seconds(lag) for lag in sorted({min(lags), max(lags)}) if lag]
    return f"{' to '.join(texts)} " if texts else ""


def listing(names: Sequence[str]) -> str:
    """The first names of a list, and the number of the others."""
    parts = [*names[:_NAMED]]
    if len(names) > _NAMED:
        parts.append(f"{len(names) - _NAMED} more")
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _names(suspects: Sequence[Suspect]) -> list[str]:
    return [suspect.name for suspect in suspects]
