"""Suspects of an episode, ranked by deviation, onset and topology.

Each suspect is a hypothesis: it failed, and what needs it followed. The hypothesis explains well
what needs the suspect and began after it, and badly everything else. The weight of a hypothesis is
a likelihood; the weights of all suspects, divided by their sum, are their scores. A score is no
probability: that is what calibration is for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from boyd.plugins.likely_causes.dependencies import Needs, Upstream, upstream
from boyd.plugins.likely_causes.episode import FaultEpisode, Pick

#: The likelihood that something is unwell which needs the suspect, if it began after it, or before.
_FOLLOWS, _PRECEDES = 0.7, 0.25
#: The same of something that does not need the suspect; "before" is also what the suspect needs.
_UNRELATED, _EARLIER = 0.12, 0.05
#: The weight of the deviation against that of the rest.
_DEVIATION = 0.5
#: Scores closer than this are a tie.
_TIE = 0.1
#: When so many others began at once, a suspect has to explain this share of them.
_MANY, _LEAST_SHARE = 3, 0.5


class Suspect(NamedTuple):
    """A thing that may be the cause.

    Attributes:
        name: of the thing.
        score: its share in the weights of all suspects.
        explains: the unwell things that need it, in order of onsets.
        beneath: the unwell things that it needs.
        needs: the number of things that it needs, unwell or not.
    """

    name: str
    score: float
    explains: list[str]
    beneath: list[str]
    needs: int


class Ranking(NamedTuple):
    """The suspects, the likeliest first, and a reason to name none of them as the cause."""

    suspects: list[Suspect]
    doubt: str = ""

    def pick(self, episode: FaultEpisode) -> Pick | None:
        """The first suspect; None if there is no other one, or a doubt."""
        if len(self.suspects) < 2 or self.doubt:
            return None
        best = self.suspects[0]
        score, first = round(best.score, 2), episode.members[0]
        return Pick(episode.at, best.name, score, first, len(self.suspects))


def rank(episode: FaultEpisode, needs: Needs, resolution: float) -> Ranking:
    """Rank the things of an episode; onsets within *resolution* seconds count as simultaneous.

    Older trouble is a suspect only if something in the episode needs it.
    """
    above, members = upstream(needs, episode.things), episode.members
    older = {name for member in members for name in above[member]} & episode.things.keys()
    names = [*members, *sorted(older - set(members))]
    weights = {name: _weight(name, names, episode, above, resolution) for name in names}
    heaviest = max(weights.values(), default=0.0)
    shares = {name: math.exp(weight - heaviest) for name, weight in weights.items()}
    suspects = [
        Suspect(
            name=name,
            score=shares[name] / sum(shares.values()),
            explains=[other for other in members if name in above[other]],
            beneath=[other for other in names if other in above[name]],
            needs=len(above[name]),
        )
        for name in sorted(names, key=lambda name: (-shares[name], names.index(name)))
    ]
    return Ranking(suspects, _doubt(episode, suspects, needs, resolution))


def _weight(
    cause: str, names: Sequence[str], episode: FaultEpisode, above: Upstream, resolution: float
) -> float:
    """The logarithm of the weight of the hypothesis that *cause* is the cause."""
    things, terms = episode.things, []
    for other in names:
        after = (things[other].onset - things[cause].onset) / resolution
        if other == cause:
            continue
        if cause in above[other]:
            # Simultaneous is as good as after: an effect can show in the same iteration.
            terms.append(_between(_PRECEDES, _FOLLOWS, min(1.0, 2 * _sigmoid(after))))
        else:
            later = 0.0 if other in above[cause] else _sigmoid(after)
            terms.append(_between(_EARLIER, _UNRELATED, later))
    # Symptoms of one fault are no independent evidence.
    evidence = sum(map(math.log, terms)) / math.sqrt(max(1.0, len(terms) / 2))
    return evidence + _DEVIATION * math.log(0.2 + things[cause].deviation)


def _between(low: float, high: float, share: float) -> float:
    return low + (high - low) * share


def _sigmoid(after: float) -> float:
    return 1 / (1 + math.exp(-2 * max(-20.0, min(20.0, after))))


def _doubt(
    episode: FaultEpisode, suspects: Sequence[Suspect], needs: Needs, resolution: float
) -> str:
    if len(suspects) < 2:
        return ""
    (best, second), others = suspects[:2], suspects[1:]
    onset = episode.things[best.name].onset
    at_once = [s for s in others if abs(episode.things[s.name].onset - onset) <= resolution]
    if len(at_once) >= max(_MANY, _LEAST_SHARE * len(others)):
        is_all = len(at_once) == len(others)
        share = f"all {len(suspects)}" if is_all else f"{len(at_once) + 1} of {len(suspects)}"
        together = f"{share} began at once"
        if len(best.explains) < _LEAST_SHARE * len(others):
            return f"{together}, also what does not depend on {best.name}; check what watches them"
        if {*needs, *(name for names in needs.values() for name in names)} <= episode.things.keys():
            return f"{together}, and nothing that is known is well; check what watches them"
    if best.score - second.score < _TIE:
        return f"{best.name} and {second.name} are about as likely"
    return ""
