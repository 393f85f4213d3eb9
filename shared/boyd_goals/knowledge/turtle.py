"""Reads and writes facts as Turtle, using rdflib; nothing is ever fetched."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Self, TypeAlias
from urllib.parse import quote, unquote

from pydantic import ValidationError

from boyd.errors import Overrun
from boyd.models import Place, Triple
from boyd.sandbox import subprocess_call
from boyd_goals import require_extra

if TYPE_CHECKING:
    import rdflib
    from rdflib.term import Node


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
                    candidate = (self._strangeness(label.language), rank, text)
                    best[str(subject)] = min(best.get(str(subject), candidate), candidate)
        return {subject: text for subject, (_, _, text) in best.items()}

    def _strangeness(self, tag: str | None) -> int:
        if tag is None:
            return 1
        return 0 if is_in_language(tag, self._language) else 2


# A fact is an RDF triple. Confidence below 1 and the source of a fact are added as an
# `rdf:Statement` with `urn:boyd:confidence` and `urn:boyd:source`, so that a graph survives a
# round trip.

#: The most bytes and triples to read.
MAX_BYTES, MAX_TRIPLES = 10_000_000, 100_000

#: The start of every text, and the separator of its parts, each of which can be read on its own.
HEADER = f"""\
# Facts of a graph of Boyd.
@prefix : <{SYMBOLS}> .
@prefix boyd: <{VOCABULARY}> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .

"""
PART = "# Another part.\n"

#: Limits of time and memory for reading a foreign file.
MAX_SECONDS, MAX_MEMORY = 60.0, 2_000_000_000
#: Facts per line of that process's output.
_PART = 500

_CONFIDENCE, _SOURCE = VOCABULARY + "confidence", VOCABULARY + "source"
#: The base of relative IRIs; it is never opened.
_BASE = "file:///"
#: Symbols that need no escaping after a prefix.
_LOCAL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?")
#: Predicates with an RDF name.
_SHORT = {IS_A: "a", SUBCLASS_OF: "rdfs:subClassOf"}
_UNSTORABLE = "\x1f"
#: Errors of rdflib's parser on invalid Turtle: its own, and accidental ones.
_PARSER_ERRORS = (SyntaxError, ValueError, LookupError, TypeError, AttributeError, AssertionError)

_Parts: TypeAlias = "tuple[Node, Node, Node]"


class TurtleError(ValueError):
    """The text is not Turtle, or too large."""


@dataclass(frozen=True, slots=True)
class ParsedGraph:
    """The facts of a Turtle file.

    Attributes:
        triples: the facts, ordered by their labels.
        skipped: numbers of skipped triples by reason: `blank-node`, `label`, `prose` (descriptions
            in sentences), `language` (of another one), `schema` (classes and properties),
            `metadata` (`agent:…`), `unfit` (empty or too long).
    """

    triples: tuple[Triple, ...]
    skipped: Mapping[str, int]


def read(
    text: str | bytes,
    *,
    source: str | None = None,
    language: str = "en",
    prose: bool = False,
    max_bytes: int = MAX_BYTES,
    max_triples: int = MAX_TRIPLES,
) -> ParsedGraph:
    """Read the facts in a Turtle text.

    Terms are named by their `rdfs:label` or `skos:prefLabel`, preferably in *language*, otherwise
    by the last part of their IRI; `a` becomes `is-a`, `rdfs:subClassOf` becomes `subclass-of`.
    Literals become symbols; blank nodes are skipped.

    *source* is that of facts that name none; *prose* also reads descriptions (`rdfs:comment`,
    `skos:definition` etc.).

    Raises:
        TurtleError: the text is not Turtle, or too large.
    """
    file = _parse(_decode(text, max_bytes), max_triples)
    names, notes = Names(file, language), _Notes(file)
    skipped: Counter[str] = Counter()
    facts: dict[Place, Triple] = {}
    for parts in file:
        if parts[0] in notes.nodes:
            continue
        fact = _skip_reason(parts, language, prose) or _fact(names, parts, notes.of(parts, source))
        if isinstance(fact, str):
            skipped[fact] += 1
        else:
            existing = facts.setdefault(fact.place, fact)
            facts[fact.place] = max(
                existing, fact, key=lambda item: (item.confidence, item.source or "")
            )
    return ParsedGraph(tuple(facts[key] for key in sorted(facts)), dict(sorted(skipped.items())))


def read_apart(text: str, *, source: str | None = None) -> ParsedGraph:
    """Run `read` in another process with limits of time and memory.

    A text of a few bytes may make rdflib compute a number of a billion digits.

    Raises:
        TurtleError: the text is not Turtle, too large, or takes too long or too much memory.
    """
    request = json.dumps({"text": text, "source": source})
    try:
        answer = subprocess_call.call(f"{__name__}:_answer", request, MAX_SECONDS, MAX_MEMORY)
    except Overrun as error:
        raise TurtleError(f"reading it {error}") from None
    except subprocess_call.Failed as error:
        raise TurtleError(f"it cannot be read: {error}") from None
    head, *parts = answer.splitlines()
    reply = json.loads(head)
    if "refused" in reply:
        raise TurtleError(reply["refused"])
    # Part by part: parsing all at once would block the interpreter for too long.
    facts = [Triple.model_validate(fact) for part in parts for fact in json.loads(part)]
    return ParsedGraph(tuple(facts), reply["skipped"])


def _answer(request: str) -> str:
    """Answer a request of `read_apart`, as one JSON document per line."""
    params = json.loads(request)
    try:
        graph = read(params["text"], source=params["source"])
    except TurtleError as error:
        return json.dumps({"refused": str(error)})
    except MemoryError:
        return json.dumps({"refused": "it takes too much memory to read"})
    facts = [fact.model_dump(mode="json") for fact in graph.triples]
    parts = (facts[at : at + _PART] for at in range(0, len(facts), _PART))
    return "\n".join(map(json.dumps, ({"skipped": dict(graph.skipped)}, *parts)))


def write(triples: Iterable[Triple]) -> str:
    """The facts as Turtle, without those about the agent."""
    return HEADER + statements(sorted(triples, key=lambda fact: fact.place))


def statements(triples: Iterable[Triple]) -> str:
    """The facts in their order, as Turtle without the header."""
    labelled: set[str] = set()
    lines = (line for fact in triples if not fact.is_metadata for line in _lines(fact, labelled))
    return "".join(f"{line}\n" for line in lines)


def parts(text: str) -> list[str]:
    """The parts of a text, each readable on its own."""
    if not text.startswith(HEADER):
        return [text]
    return [HEADER + part for part in text.removeprefix(HEADER).split(PART)]


def _lines(fact: Triple, labelled: set[str]) -> Iterator[str]:
    """The statements for a fact, and a label for each term that is not in *labelled*."""
    predicate = _SHORT.get(fact.predicate) or _term(fact.predicate)
    ends = (_term(fact.subject), predicate, _term(fact.object))
    yield f"{' '.join(ends)} ."
    for term, label in zip(ends, fact.place, strict=True):
        if term.startswith("<") and term not in labelled:
            labelled.add(term)
            yield f"{term} rdfs:label {_quote(label)} ."
    if fact.confidence < 1 or fact.source is not None:
        rdf_predicate = "rdf:type" if predicate == "a" else predicate
        note = f"rdf:subject {ends[0]} ; rdf:predicate {rdf_predicate} ; rdf:object {ends[2]}"
        source = "" if fact.source is None else f" ; boyd:source {_quote(fact.source)}"
        sure = format(Decimal(repr(fact.confidence)), "f")
        yield f"[] a rdf:Statement ; {note} ; boyd:confidence {sure}{source} ."


def _term(symbol: str) -> str:
    if _LOCAL.fullmatch(symbol):
        return f":{symbol}"
    return f"<{SYMBOLS}{quote(symbol, safe='', errors='surrogatepass')}>"


def _quote(text: str) -> str:
    """A literal; JSON and Turtle use the same escapes."""
    return json.dumps(text, ensure_ascii=False)


class _Notes:
    """Confidence and source of facts in a file, and the nodes of those statements."""

    def __init__(self, file: rdflib.Graph) -> None:
        with require_extra():
            import rdflib
        confidences = dict(file.subject_objects(rdflib.URIRef(_CONFIDENCE)))
        sources = dict(file.subject_objects(rdflib.URIRef(_SOURCE)))
        self.nodes: set[Node] = {*confidences, *sources}
        self._notes: dict[_Parts, tuple[str | None, str | None]] = {}
        for node in self.nodes:
            roles = (rdflib.RDF.subject, rdflib.RDF.predicate, rdflib.RDF.object)
            subject, predicate, object_ = (file.value(node, part) for part in roles)
            if subject is not None and predicate is not None and object_ is not None:
                note = (_text(confidences.get(node)), _text(sources.get(node)))
                self._notes[subject, predicate, object_] = note

    def of(self, parts: _Parts, source: str | None) -> tuple[float, str | None]:
        """The confidence of a fact, 0 if it is invalid, and its source, by default *source*."""
        if parts not in self._notes:
            return 1.0, source
        confidence, own_source = self._notes[parts]
        return _confidence(confidence), source if own_source is None else own_source


def _decode(text: str | bytes, max_bytes: int) -> str:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(data) > max_bytes:
        raise TurtleError(f"it has {len(data)} bytes, and at most {max_bytes} are read")
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise TurtleError(f"it is not UTF-8: {error}") from error


def _parse(text: str, max_triples: int) -> rdflib.Graph:
    with require_extra():
        import rdflib

    class Bounded(rdflib.Graph):
        def __init__(self) -> None:
            self._prefixes: dict[str, str] = {}
            super().__init__(bind_namespaces="none")

        def add(self, triple: _Parts) -> Self:
            if len(self) >= max_triples:
                raise TurtleError(f"it has more than {max_triples} triples")
            super().add(triple)
            return self

        def bind(self, prefix: str | None, namespace: object, *_: object, **__: object) -> None:
            # rdflib would compare each prefix with all others.
            self._prefixes[str(namespace)] = prefix or ""

        def namespaces(self) -> Generator[tuple[str, rdflib.URIRef], None, None]:
            yield from ((prefix, rdflib.URIRef(iri)) for iri, prefix in self._prefixes.items())

    try:
        return Bounded().parse(data=text, format="turtle", publicID=_BASE)
    except TurtleError:
        raise
    except RecursionError as error:
        raise TurtleError("it nests too deeply") from error
    except _PARSER_ERRORS as error:
        raise TurtleError(_explain(text, error)) from error


def _explain(text: str, error: Exception) -> str:
    # The line in rdflib's message is often too high; its position is right.
    state = vars(error)
    if not isinstance(error, SyntaxError) or "_i" not in state:
        return "it is not Turtle, or ends in the middle"
    line = text.count("\n", 0, state["_i"]) + 1
    return f"line {line} is not Turtle: {state.get('_why', 'it cannot be read')}"


def _skip_reason(parts: _Parts, language: str, prose: bool) -> str | None:
    """The reason to skip a triple before anything is named."""
    from rdflib import RDF, BNode, Literal

    subject, predicate, object_ = parts
    if isinstance(subject, BNode) or isinstance(object_, BNode):
        return "blank-node"
    if str(predicate) in LABELS:
        return "label"
    if predicate == RDF.type and str(object_).startswith(LANGUAGES):
        return "schema"
    if isinstance(object_, Literal):
        if str(predicate) in PROSE and not prose:
            return "prose"
        return None if is_in_language(object_.language, language) else "language"
    return None


def _fact(names: Names, parts: _Parts, note: tuple[float, str | None]) -> Triple | str:
    """The fact in a triple, or the reason to skip it."""
    from rdflib import URIRef

    subject, predicate, object_ = parts
    text = names.of(str(object_)) if isinstance(object_, URIRef) else str(object_).strip()
    try:
        fact = Triple(
            subject=names.of(str(subject)),
            predicate=names.of_predicate(str(predicate)),
            object=text,
            confidence=note[0],
            source=note[1],
        )
    except ValidationError:
        return "unfit"
    if any(_UNSTORABLE in part for part in fact.place):
        return "unfit"
    return "metadata" if fact.is_metadata else fact


def _text(node: Node | None) -> str | None:
    return None if node is None else str(node)


def _confidence(text: str | None) -> float:
    try:
        value = 1.0 if text is None else float(text)
    except ValueError:
        return 0.0
    return value if 0 <= value <= 1 else 0.0
