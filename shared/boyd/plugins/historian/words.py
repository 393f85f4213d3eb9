"""What an incident is found again by: the words of its observations, and nothing else.

Two sets of keywords are as similar as the share of words that both have among those that either has
(Jaccard): 1 for the same words, 0 for none in common. Both sets come about in the same way and hold
at most `MOST` words, so neither is larger only because more was seen.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from boyd.models import Observation
from boyd.plugins.investigation.fingerprint import normal
from boyd.redaction import redactor

#: Keywords of an incident, and characters of each.
MOST = 15
LONGEST = 60

_WORD = re.compile(r"[^\W\d_]\w*(?:[.-]\w+)*")
_COMMON = frozenset(
    """a about after all also an and any are as at be because been before but by can could did do
    does else false for from had has have if in into is it its more no none not null of on one only
    or other our out over so some than that the their them then there these they this to true under
    up was we were what when where which while who will with would you your""".split()  # noqa: SIM905 - easier to read
)


def keywords(observations: Iterable[Observation], most: int = MOST) -> list[str]:
    """The words that most *observations* have in sources and texts, then by the alphabet."""
    counts: Counter[str] = Counter()
    for one in observations:
        counts.update(set(_words(one)))
    return sorted(counts, key=lambda word: (-counts[word], word))[:most]


def similarity(one: Collection[str], other: Collection[str]) -> float:
    """How similar two sets of keywords are, from 0 to 1."""
    either = len({*one, *other})
    return len({*one} & {*other}) / either if either else 0.0


def _words(observation: Observation) -> Iterator[str]:
    # What is kept for long, and told to models, holds no secrets.
    safe = redactor().redact_json({"source": observation.source, "data": observation.data})
    for text in _texts(safe):
        for word in _WORD.findall(normal(text).casefold()):
            if 3 <= len(word) <= LONGEST and word not in _COMMON:
                yield word


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)
