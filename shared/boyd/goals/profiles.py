"""What each tool is for, in words, and how those words widen to others (M4)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from pydantic import Field

from boyd.goals.hyper import bundle
from boyd.goals.shapes import Archetype, Danger
from boyd.models import Confidence, Model
from boyd.words import stem

if TYPE_CHECKING:
    from boyd.goals.hyper import Vector

#: A word of the profile counts twice as much as one that only stands for the same.
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
    """What utility scoring must know of a tool; other plugins' actions may have one too.

    Attributes:
        name: of the tool, as the goal's history and episodes name it.
        keywords: what it is for; 17 to 25 words are a good number.
        threshold: the similarity of goal and tool must be greater than this.
        multiplier: of the similarity, which gives the base score.
        danger: the worst it may do; a tool may know better once it has its parameters.
        consolidation: it tidies memory, so it is preferred while that is nearly full.
        archetype: the side of the psyche that likes it.
    """

    name: str = Field(min_length=1)
    keywords: tuple[str, ...] = Field(default=(), strict=False)
    threshold: Confidence = 0.55
    multiplier: Confidence = 0.75
    danger: Danger = "Cautious"
    consolidation: bool = False
    archetype: Archetype | None = None


def expand(keywords: tuple[str, ...]) -> dict[str, int]:
    """The weights of a profile's words and of their synonyms, in one pass.

    A word that is a root or stands under one brings the root and all its words; what it brings
    does not bring others in turn.
    """
    own = {stem(word) for word in keywords}
    brought = {
        stem(word)
        for root, others in SYNONYMS.items()
        if not own.isdisjoint(stem(one) for one in (root, *others))
        for word in (root, *others)
    }
    return dict.fromkeys(sorted(brought), SYNONYM) | dict.fromkeys(sorted(own), WORD)


@lru_cache(maxsize=128)
def vector(keywords: tuple[str, ...]) -> Vector:
    """A profile's words, expanded, as a hypervector; do not write to it."""
    made = bundle(expand(keywords))
    made.setflags(write=False)
    return made


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_PROFILES = (
    ToolProfile(name="kg_query", danger="Safe", archetype="sage"),
    ToolProfile(name="kg_mutate", danger="Cautious"),
    ToolProfile(name="memory_recall", danger="Safe", consolidation=True, archetype="guardian"),
    ToolProfile(name="reason", danger="Safe", archetype="sage"),
    ToolProfile(name="similarity_search", danger="Safe", archetype="guardian"),
    ToolProfile(
        name="file_io",
        keywords=_words(
            "file read write save load open close path folder directory disk export import append "
            "output input text data"
        ),
        archetype="explorer",
    ),
    ToolProfile(
        name="http_fetch",
        keywords=_words(
            "http https url web website page site internet online download fetch get request "
            "endpoint api link browse remote"
        ),
        archetype="explorer",
    ),
    ToolProfile(
        name="shell_exec",
        keywords=_words(
            "shell command execute run script terminal console bash process program binary launch "
            "invoke start kill pipe system"
        ),
        danger="Danger",
        archetype="explorer",
    ),
    ToolProfile(
        name="infer_rules",
        keywords=_words(
            "infer deduce derive conclude imply rule logic transitive inherit classify type "
            "hierarchy ontology chain forward propagate reason"
        ),
        threshold=0.0,
        multiplier=0.7,
        danger="Safe",
        archetype="sage",
    ),
    ToolProfile(
        name="gap_analysis",
        keywords=_words(
            "gap missing incomplete unknown lack absent sparse coverage insufficient unanswered "
            "need require discover explore what undefined weak"
        ),
        threshold=0.0,
        multiplier=0.7,
        danger="Safe",
        archetype="healer",
    ),
    ToolProfile(
        name="user_interact",
        keywords=_words(
            "ask user human person question answer prompt confirm clarify approve choose feedback "
            "reply respond dialog interact help"
        ),
        danger="Safe",
        archetype="healer",
    ),
    ToolProfile(
        name="content_ingest",
        keywords=_words(
            "ingest import load absorb add capture collect document paper article book pdf epub "
            "html publication website library archive parse content learn store"
        ),
        threshold=0.5,
    ),
    ToolProfile(
        name="library_search",
        keywords=_words(
            "search library find lookup retrieve paper article book document paragraph passage "
            "chapter author topic about said mention quote citation reference source knowledge"
        ),
        threshold=0.5,
        multiplier=0.8,
        danger="Safe",
    ),
    ToolProfile(
        name="consolidate",
        keywords=_words(
            "consolidate memory memorize remember keep retain tidy compact compress condense "
            "summarize digest forget free working episode lesson"
        ),
        danger="Safe",
        consolidation=True,
    ),
)

#: The tools of `boyd.goals`; of those with the same score the first here is chosen.
PROFILES: dict[str, ToolProfile] = {profile.name: profile for profile in _PROFILES}
