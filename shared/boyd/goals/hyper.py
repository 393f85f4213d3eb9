"""Texts as hypervectors: sums of directions that come from hashes of their words (M4).

Every number here is an integer until the last step, so that all workers get the same similarity to
the last bit, on any platform.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from boyd.goals.extra import extra
from boyd.words import stem, tokens

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector: TypeAlias = npt.NDArray[np.int64]

DIMENSIONS = 10_000
#: The standard deviation of the similarity of texts that have nothing in common.
NOISE = 0.5 / math.sqrt(DIMENSIONS)
#: The similarity of texts that have nothing in common, and of an empty text with any.
UNRELATED = 0.5

#: The only stop words that do not count here (M4): a tool may be for what the others ask, such as
#: `what` and `about`.
FUNCTION_WORDS = frozenset({"the", "and", "for", "that", "this", "from", "with"})
_SHORTEST = 3


def heard(text: str) -> list[str]:
    """The words of *text* that count: lower case, singular, of three characters at least."""
    found = (word.lower() for word in tokens(text))
    return [stem(word) for word in found if len(word) >= _SHORTEST and word not in FUNCTION_WORDS]


@lru_cache(maxsize=64)
def encode(text: str) -> Vector:
    """A text as the sum of its words, zero without any; do not write to it."""
    vector = bundle(Counter(heard(text)))
    vector.setflags(write=False)
    return vector


def bundle(weights: Mapping[str, int]) -> Vector:
    """The weighted sum of tokens."""
    with extra():
        import numpy as np
    total = np.zeros(DIMENSIONS, dtype=np.int64)
    for token, weight in weights.items():
        total += token_vector(token) * np.int64(weight)
    return total


@lru_cache(maxsize=1024)
def token_vector(token: str) -> npt.NDArray[np.int8]:
    """A token as 1 and -1 in each dimension; do not write to it."""
    with extra():
        import numpy as np
    digest = hashlib.shake_256(token.encode("utf-8", "surrogatepass")).digest(DIMENSIONS // 8)
    bits = np.unpackbits(np.frombuffer(digest, dtype=np.uint8))
    vector: npt.NDArray[np.int8] = bits.astype(np.int8) * np.int8(2) - np.int8(1)
    vector.setflags(write=False)
    return vector


def similarity(one: Vector, other: Vector) -> float:
    """0.5 + 0.5·cos: 1 for the same direction, 0.5 for unrelated ones."""
    lengths = int(one @ one) * int(other @ other)
    if lengths == 0:
        return UNRELATED
    return UNRELATED + 0.5 * (int(one @ other) / math.sqrt(lengths))
