"""The names of RDF terms in a graph, and the IRIs of symbols."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING
from urllib.parse import unquote

from boyd_goals import require_extra

if TYPE_CHECKING:
    import rdflib

#: The prefix of symbols of goals.
GOAL = "goal:"

IS_A = "is-a"
SUBCLASS_OF = "subclass-of"
PART_OF = "part-of"
HAS_A = "has-a"
SIMILAR_TO = "similar-to"
PARENT_OF = "parent-of"
CHILD_OF = "child-of"
CONTAINS = "contains"
#: A mere association, and that a word occurs in a document; no rule uses them.
RELATED_TO = "related-to"
MENTIONS = "mentions"

_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN = re.compile(r"[\s_-]+")


def canonical(predicate: str) -> str:
    """The spelling of a predicate that rules know: `isPartOf` and `part_of` become `part-of`.

    Predicates that begin with `agent:` stay as they are.
    """
    if predicate.startswith("agent:"):
        return predicate
    joined = _BETWEEN.sub("-", _BOUNDARY.sub("-", predicate).strip()).strip("-").lower()
    return _SPELLED.get(joined, joined) or predicate


_SPELLED = {
    "isa": IS_A,
    "is-an": IS_A,
    "sub-class-of": SUBCLASS_OF,
    "is-part-of": PART_OF,
    "has": HAS_A,
    "has-an": HAS_A,
    "is-similar-to": SIMILAR_TO,
    "is-parent-of": PARENT_OF,
    "is-child-of": CHILD_OF,
    "contain": CONTAINS,
    "has-part": CONTAINS,
}


#: The prefixes of IRIs of symbols, and of Boyd's own vocabulary.
SYMBOLS = "urn:boyd:symbol:"
VOCABULARY = "urn:boyd:"

_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_RDFS = "http://www.w3.org/2000/01/rdf-schema#"
_OWL = "http://www.w3.org/2002/07/owl#"
_SKOS = "http://www.w3.org/2004/02/skos/core#"
#: The prefixes of terms of RDF, RDFS and OWL.
LANGUAGES = (_RDF, _RDFS, _OWL)
#: Predicates that give the label of their subject, and that describe it in sentences.
LABELS = (_RDFS + "label", _SKOS + "prefLabel")
PROSE = frozenset(
    {
        _RDFS + "comment",
        *(_SKOS + name for name in ("definition", "note", "scopeNote", "example", "editorialNote")),
        *(_SKOS + name for name in ("changeNote", "historyNote")),
        "http://purl.org/dc/elements/1.1/description",
        "http://purl.org/dc/terms/description",
    }
)
#: Names of RDF predicates.
_CALLED = {_RDF + "type": IS_A, _RDFS + "subClassOf": SUBCLASS_OF}
_PARTS = re.compile(r"[#/:]")


def is_in_language(tag: str | None, language: str) -> bool:
    """True if a text with that language tag is wanted."""
    return tag is None or tag.lower().split("-")[0] == language.lower()


class Names:
    """The names of the IRIs in a file.

    A name is the label of the term, otherwise the last part of its IRI; predicates are spelled as
    rules know them. Different terms with the same name get their prefix or their whole IRI added.
    """

    def __init__(self, file: rdflib.Graph, language: str) -> None:
        with require_extra():
            import rdflib
        self._language = language
        self._prefixes = {str(iri): prefix for prefix, iri in file.namespaces()}
        self._labels = self._read_labels(file)
        self._predicates = {str(predicate) for predicate in file.predicates(unique=True)}
        ends = {end for subject, _, object_ in file for end in (subject, object_)}
        terms = {str(end) for end in ends if isinstance(end, rdflib.URIRef)} - self._predicates
        self._taken = Counter(self._plain(iri) for iri in terms)
        spelled = {iri: self._with_prefix(iri) for iri in terms}
        self._spelled = Counter(spelled.values())

    def of(self, iri: str) -> str:
        """The name of a term."""
        if iri in self._predicates:
            return self.of_predicate(iri)
        plain = self._plain(iri)
        if self._taken[plain] <= 1 or iri.startswith(SYMBOLS):
            return plain
        name = self._with_prefix(iri)
        return name if name != plain and self._spelled[name] == 1 else f"{plain} <{iri}>"

    def of_predicate(self, iri: str) -> str:
        """The name of a predicate."""
        if iri.startswith(SYMBOLS):
            return self._plain(iri)
        return _CALLED.get(iri) or canonical(self._plain(iri))

    def _plain(self, iri: str) -> str:
        if iri.startswith(SYMBOLS):
            return unquote(iri.removeprefix(SYMBOLS), errors="surrogatepass")
        if label := self._labels.get(iri):
            return label
        parts = [part for part in _PARTS.split(unquote(iri)) if part]
        return parts[-1] if parts else iri

    def _with_prefix(self, iri: str) -> str:
        space = iri[: max(iri.rfind(mark) for mark in "#/:") + 1]
        prefix = self._prefixes.get(space)
        return f"{self._plain(iri)} ({prefix})" if prefix else self._plain(iri)

    def _read_labels(self, file: rdflib.Graph) -> dict[str, str]:
        from rdflib import Literal, URIRef

        best: dict[str, tuple[int, int, str]] = {}
        for rank, predicate in enumerate(LABELS):
            for subject, label in file.subject_objects(URIRef(predicate)):
                text = " ".join(str(label).split())
                if isinstance(label, Literal) and text:
                    found = (self._strangeness(label.language), rank, text)
                    best[str(subject)] = min(best.get(str(subject), found), found)
        return {subject: text for subject, (_, _, text) in best.items()}

    def _strangeness(self, tag: str | None) -> int:
        if tag is None:
            return 1
        return 0 if is_in_language(tag, self._language) else 2
