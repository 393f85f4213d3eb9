"""Profiles of the tools: their purpose as keywords, expanded by synonyms, as hypervectors."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import Field

from boyd.models import Confidence, Model
from boyd.text.tokenizer import stem, tokens
from boyd_goals import require_extra
from boyd_goals.state import Archetype, Danger

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector: TypeAlias = npt.NDArray[np.int64]

DIMENSIONS = 10_000
#: Standard deviation of the similarity of unrelated texts.
NOISE = 0.5 / math.sqrt(DIMENSIONS)
#: Similarity of unrelated texts, and of an empty text to any.
UNRELATED = 0.5

#: Other stop words, such as `what` and `about`, may name a tool's purpose.
FUNCTION_WORDS = frozenset({"the", "and", "for", "that", "this", "from", "with"})
_SHORTEST = 3


def content_words(text: str) -> list[str]:
    """The words of *text* that count: lower case, singular, at least three characters."""
    all_words = (word.lower() for word in tokens(text))
    return [
        stem(word) for word in all_words if len(word) >= _SHORTEST and word not in FUNCTION_WORDS
    ]


@lru_cache(maxsize=64)
def encode(text: str) -> Vector:
    """A text as the read-only sum of its words."""
    vector = bundle(Counter(content_words(text)))
    vector.setflags(write=False)
    return vector


def bundle(weights: Mapping[str, int]) -> Vector:
    """The weighted sum of tokens."""
    with require_extra():
        import numpy as np
    total = np.zeros(DIMENSIONS, dtype=np.int64)
    for token, weight in weights.items():
        total += token_vector(token) * np.int64(weight)
    return total


@lru_cache(maxsize=1024)
def token_vector(token: str) -> npt.NDArray[np.int8]:
    """A token as a read-only vector of 1 and -1."""
    with require_extra():
        import numpy as np
    digest = hashlib.shake_256(token.encode("utf-8", "surrogatepass")).digest(DIMENSIONS // 8)
    bits = np.unpackbits(np.frombuffer(digest, dtype=np.uint8))
    vector: npt.NDArray[np.int8] = bits.astype(np.int8) * np.int8(2) - np.int8(1)
    vector.setflags(write=False)
    return vector


def similarity(first: Vector, second: Vector) -> float:
    """0.5 + 0.5·cos: 1 for the same direction, 0.5 for unrelated ones."""
    lengths = int(first @ first) * int(second @ second)
    if lengths == 0:
        return UNRELATED
    return UNRELATED + 0.5 * (int(first @ second) / math.sqrt(lengths))


#: Weights of a profile's words and of their synonyms.
WORD, SYNONYM = 2, 1

SYNONYMS: dict[str, tuple[str, ...]] = {
    "search": ("find", "lookup", "locate", "seek", "discover"),
    "document": ("paper", "article", "book", "report", "pdf"),
    "fetch": ("download", "retrieve", "get", "request", "pull"),
    "write": ("save", "store", "export", "output", "append"),
    "read": ("open", "load", "view", "input", "scan"),
    "execute": ("run", "launch", "invoke", "start", "perform"),
    "ask": ("question", "query", "inquire", "prompt", "consult"),
    "infer": ("deduce", "derive", "conclude", "reason", "imply"),
    "knowledge": ("fact", "information", "learn", "understand"),
    "missing": ("gap", "absent", "lack", "incomplete", "unknown"),
    "ingest": ("import", "absorb", "load", "add", "collect"),
    "library": ("archive", "collection", "catalog", "corpus", "shelf"),
    "similar": ("alike", "related", "resemble", "comparable", "analogous"),
    "memory": ("recall", "remember", "episode", "history", "past"),
    "create": ("make", "build", "generate", "construct", "produce"),
    "analyze": ("examine", "inspect", "study", "evaluate", "assess"),
    "command": ("shell", "terminal", "console", "script", "program"),
    "web": ("internet", "online", "website", "site", "url"),
    "topic": ("subject", "theme", "field", "concept"),
    "quote": ("said", "say", "says", "mention", "cite", "passage"),
}


class ToolProfile(Model):
    """The properties of a tool that scoring needs; other plugins' actions may have one too.

    Attributes:
        keywords: its purpose; 17 to 25 words work well.
        threshold: the similarity to the goal must exceed it.
        multiplier: turns similarity into the base score.
        danger: the worst it may do, unless its params tell more.
        consolidation: it tidies memory, and is preferred while memory is nearly full.
        archetype: the archetype that prefers it.
    """

    name: str = Field(min_length=1)
    keywords: tuple[str, ...] = Field(default=(), strict=False)
    threshold: Confidence = 0.55
    multiplier: Confidence = 0.75
    danger: Danger = "Cautious"
    consolidation: bool = False
    archetype: Archetype | None = None


def expand(keywords: tuple[str, ...]) -> dict[str, int]:
    """The weights of a profile's words and of their direct synonyms.

    A word that is a root or a synonym of it brings the root and all its synonyms.
    """
    own = {stem(word) for word in keywords}
    brought = {
        stem(word)
        for root, others in SYNONYMS.items()
        if not own.isdisjoint(stem(member) for member in (root, *others))
        for word in (root, *others)
    }
    return dict.fromkeys(sorted(brought), SYNONYM) | dict.fromkeys(sorted(own), WORD)


@lru_cache(maxsize=128)
def vector(keywords: tuple[str, ...]) -> Vector:
    """A profile's expanded words as a read-only hypervector."""
    result = bundle(expand(keywords))
    result.setflags(write=False)
    return result


_KEYWORDS = {
    "file_io": """file read write save load open close path folder directory disk export import
        append output input text data""",
    "http_fetch": """http https url web website page site internet online download fetch get request
        endpoint api link browse remote""",
    "shell_exec": """shell command execute run script terminal console bash process program binary
        launch invoke start kill pipe system""",
    "infer_rules": """infer deduce derive conclude imply rule logic transitive inherit classify type
        hierarchy ontology chain forward propagate reason""",
    "gap_analysis": """gap missing incomplete unknown lack absent sparse coverage insufficient
        unanswered need require discover explore what undefined weak""",
    "user_interact": """ask user human person question answer prompt confirm clarify approve choose
        feedback reply respond dialog interact help""",
    "content_ingest": """ingest import load absorb add capture collect document paper article book
        pdf epub html publication website library archive parse content learn store""",
    "library_search": """search library find lookup retrieve paper article book document paragraph
        passage chapter author topic about said mention quote citation reference source
        knowledge""",
    "consolidate": """consolidate memory memorize remember keep retain tidy compact compress
        condense summarize digest forget free working episode lesson""",
}


def _profile(name: str, danger: Danger = "Cautious", **fields: Any) -> ToolProfile:
    keywords = tuple(_KEYWORDS.get(name, "").split())
    return ToolProfile(name=name, keywords=keywords, danger=danger, **fields)


_PROFILES = (
    _profile("kg_query", "Safe", archetype="sage"),
    _profile("kg_mutate"),
    _profile("memory_recall", "Safe", consolidation=True, archetype="guardian"),
    _profile("reason", "Safe", archetype="sage"),
    _profile("similarity_search", "Safe", archetype="guardian"),
    _profile("file_io", archetype="explorer"),
    _profile("http_fetch", archetype="explorer"),
    _profile("shell_exec", "Danger", archetype="explorer"),
    _profile("infer_rules", "Safe", threshold=0.0, multiplier=0.7, archetype="sage"),
    _profile("gap_analysis", "Safe", threshold=0.0, multiplier=0.7, archetype="healer"),
    _profile("user_interact", "Safe", archetype="healer"),
    _profile("content_ingest", threshold=0.5),
    _profile("library_search", "Safe", threshold=0.5, multiplier=0.8),
    _profile("consolidate", "Safe", consolidation=True),
)
#: The own tools; of equal scores, the first one here wins.
PROFILES: dict[str, ToolProfile] = {profile.name: profile for profile in _PROFILES}
