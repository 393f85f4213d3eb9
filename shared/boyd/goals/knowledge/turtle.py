"""Graphs of facts from and to Turtle, by rdflib; nothing is ever fetched (M11).

A fact is a triple of RDF. What is less than certain, or has a source, is said once more as an
`rdf:Statement` with `urn:boyd:confidence` and `urn:boyd:source`: other programs read the fact, and
Boyd reads it back as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Self, TypeAlias

from pydantic import ValidationError

from boyd.goals.extra import extra
from boyd.goals.knowledge.naming import (
    SYMBOLS,
    VOCABULARY,
    Names,
    is_label,
    is_of_language,
    is_prose,
    predicate_iri,
    speaks,
    symbol_iri,
)
from boyd.goals.knowledge.predicates import IS_A, SUBCLASS_OF
from boyd.models import Triple

if TYPE_CHECKING:
    import rdflib
    from rdflib.term import Node

#: The most bytes that are read, and the most triples.
MAX_BYTES, MAX_TRIPLES = 10_000_000, 100_000

_CONFIDENCE, _SOURCE = VOCABULARY + "confidence", VOCABULARY + "source"
#: What relative IRIs are relative to; it is never opened.
_BASE = "file:///"
_UNSTORABLE = "\x1f"
#: What rdflib's parser raises when a text is not Turtle: its own, and whatever it runs into.
_PARSER_ERRORS = (SyntaxError, ValueError, LookupError, TypeError, AttributeError, AssertionError)

_Parts: TypeAlias = "tuple[Node, Node, Node]"


class TurtleError(ValueError):
    """A text that is no Turtle, or too much of it."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What a file of Turtle says.

    Attributes:
        triples: its facts, in the order of their labels.
        skipped: how many triples were left out for which reason: `blank-node`, `label` (they name
            what they are about), `prose` (they explain it in sentences), `language` (of another
            one), `schema` (is a class, a property), `metadata` (`agent:…`), `unfit` (an empty
            label, or a text that is too long for one).
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
) -> Imported:
    """Read the facts in a text of Turtle.

    Things are called by their `rdfs:label` or `skos:prefLabel`, in *language* if there is one, else
    by the last part of their IRI; `a` is `is-a` and `rdfs:subClassOf` is `subclass-of`. Literals
    become symbols of their text. Of blank nodes nothing is taken.

    Args:
        text: what to read; bytes are UTF-8.
        source: of the facts that name none.
        language: of literals with a language, those in this one are taken.
        prose: take the texts of `rdfs:comment`, `skos:definition` and their like too: words in them
            can be found then, but each is a symbol that leads nowhere.
        max_bytes: the most that is read.
        max_triples: the most that the file may have.

    Raises:
        TurtleError: it is not Turtle, or too large.
    """
    file = _parsed(_bounded(text, max_bytes), max_triples)
    names, notes = Names(file, language), _Notes(file)
    skipped: Counter[str] = Counter()
    found: dict[tuple[str, str, str], Triple] = {}
    for parts in file:
        if parts[0] in notes.nodes:
            continue
        fact = _unwanted(parts, language, prose) or _fact(names, parts, notes.of(parts, source))
        if isinstance(fact, str):
            skipped[fact] += 1
        else:
            known = found.setdefault(_key(fact), fact)
            found[_key(fact)] = max(known, fact, key=_sureness)
    return Imported(tuple(found[key] for key in sorted(found)), dict(sorted(skipped.items())))


def write(triples: Iterable[Triple]) -> str:
    """The facts as Turtle, without those about the agent; `read` gives the same ones.

    Raises:
        ConfigError: rdflib is not installed.
    """
    with extra():
        import rdflib
    file = rdflib.Graph(bind_namespaces="core")
    file.bind("", SYMBOLS)
    file.bind("boyd", VOCABULARY)
    knowledge = (triple for triple in triples if not triple.is_metadata)
    for number, fact in enumerate(sorted(knowledge, key=_key)):
        parts = (
            rdflib.URIRef(symbol_iri(fact.subject)),
            rdflib.URIRef(predicate_iri(fact.predicate)),
            rdflib.URIRef(symbol_iri(fact.object)),
        )
        file.add(parts)
        for part, name in zip(parts, _key(fact), strict=True):
            if str(part) not in (SYMBOLS + name, predicate_iri(IS_A), predicate_iri(SUBCLASS_OF)):
                file.add((part, rdflib.RDFS.label, rdflib.Literal(name)))
        if fact.confidence < 1 or fact.source is not None:
            _add_note(file, rdflib.BNode(f"n{number:09}"), parts, fact)
    return file.serialize(format="turtle")


class _Notes:
    """What the statements of `write` say of facts.

    Attributes:
        nodes: the statements themselves.
    """

    def __init__(self, file: rdflib.Graph) -> None:
        with extra():
            import rdflib
        confidences = dict(file.subject_objects(rdflib.URIRef(_CONFIDENCE)))
        sources = dict(file.subject_objects(rdflib.URIRef(_SOURCE)))
        self.nodes: set[Node] = {*confidences, *sources}
        self._notes: dict[_Parts, tuple[str | None, str | None]] = {}
        for node in self.nodes:
            of = (rdflib.RDF.subject, rdflib.RDF.predicate, rdflib.RDF.object)
            subject, predicate, object_ = (file.value(node, part) for part in of)
            if subject is not None and predicate is not None and object_ is not None:
                note = (_text(confidences.get(node)), _text(sources.get(node)))
                self._notes[subject, predicate, object_] = note

    def of(self, parts: _Parts, source: str | None) -> tuple[float, str | None]:
        """How sure a fact is, and where it comes from: *source* unless it is noted.

        What is noted as its confidence and is none is nothing to rely on: 0.
        """
        if parts not in self._notes:
            return 1.0, source
        confidence, named = self._notes[parts]
        sureness = 1.0 if confidence is None else _confidence(confidence)
        return sureness, source if named is None else named


def _add_note(file: rdflib.Graph, node: rdflib.BNode, parts: _Parts, fact: Triple) -> None:
    from rdflib import RDF, Literal, URIRef

    file.add((node, RDF.type, RDF.Statement))
    for predicate, part in zip((RDF.subject, RDF.predicate, RDF.object), parts, strict=True):
        file.add((node, predicate, part))
    confidence = Literal(Decimal(format(Decimal(repr(fact.confidence)), "f")))
    file.add((node, URIRef(_CONFIDENCE), confidence))
    if fact.source is not None:
        file.add((node, URIRef(_SOURCE), Literal(fact.source)))


def _bounded(text: str | bytes, max_bytes: int) -> str:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(data) > max_bytes:
        raise TurtleError(f"it has {len(data)} bytes, and at most {max_bytes} are read")
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise TurtleError(f"it is not UTF-8: {error}") from error


def _parsed(text: str, max_triples: int) -> rdflib.Graph:
    with extra():
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
            # rdflib compares each prefix with all the others.
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
        raise TurtleError(_explained(text, error)) from error


def _explained(text: str, error: Exception) -> str:
    # What rdflib's message has as the line is often too much; where it stopped is right.
    state = vars(error)
    if not isinstance(error, SyntaxError) or "_i" not in state:
        return "it is not Turtle, or ends in the middle"
    line = text.count("\n", 0, state["_i"]) + 1
    return f"line {line} is not Turtle: {state.get('_why', 'it cannot be read')}"


def _unwanted(parts: _Parts, language: str, prose: bool) -> str | None:
    """Why a triple of RDF is no fact, before anything is named."""
    from rdflib import RDF, BNode, Literal

    subject, predicate, object_ = parts
    if isinstance(subject, BNode) or isinstance(object_, BNode):
        return "blank-node"
    if is_label(str(predicate)):
        return "label"
    if predicate == RDF.type and is_of_language(str(object_)):
        return "schema"
    if isinstance(object_, Literal):
        return _unwanted_text(object_, str(predicate), language, prose)
    return None


def _unwanted_text(text: rdflib.Literal, predicate: str, language: str, prose: bool) -> str | None:
    if is_prose(predicate) and not prose:
        return "prose"
    return None if speaks(text.language, language) else "language"


def _fact(names: Names, parts: _Parts, note: tuple[float, str | None]) -> Triple | str:
    """The fact that a triple of RDF states, or why it is none."""
    from rdflib import URIRef

    subject, predicate, object_ = parts
    confidence, source = note
    text = names.of(str(object_)) if isinstance(object_, URIRef) else str(object_).strip()
    try:
        fact = Triple(
            subject=names.of(str(subject)),
            predicate=names.of_predicate(str(predicate)),
            object=text,
            confidence=confidence,
            source=source,
        )
    except ValidationError:
        return "unfit"
    if any(_UNSTORABLE in part for part in _key(fact)):
        return "unfit"
    return "metadata" if fact.is_metadata else fact


def _key(fact: Triple) -> tuple[str, str, str]:
    return (fact.subject, fact.predicate, fact.object)


def _sureness(fact: Triple) -> tuple[float, str]:
    return (fact.confidence, fact.source or "")


def _text(node: Node | None) -> str | None:
    return None if node is None else str(node)


def _confidence(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0 <= value <= 1 else 0.0
