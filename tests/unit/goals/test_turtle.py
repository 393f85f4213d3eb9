"""Graphs from and to Turtle."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boyd.errors import ConfigError
from boyd.models import Triple
from boyd.testing.lab import MemoryGraph
from boyd_goals.knowledge import turtle
from boyd_goals.knowledge.reasoning import infer
from boyd_goals.knowledge.turtle import HEADER, PART, TurtleError, parts, read, statements, write
from costs import MOST, growth

PREFIXES = """
@prefix : <http://example.org/sky#> .
@prefix other: <http://example.org/other#> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix boyd: <urn:boyd:> .
@prefix mine: <urn:boyd:symbol:> .
"""


def facts(text: str, **options: Any) -> list[tuple[str, str, str]]:
    triples = read(PREFIXES + text, **options).triples
    return [(fact.subject, fact.predicate, fact.object) for fact in triples]


def skips(text: str) -> dict[str, int]:
    return dict(read(PREFIXES + text).skipped)


def test_terms_are_called_by_the_last_part_of_their_iri() -> None:
    assert facts(":Mars :hasMoon <http://example.org/moons/Phobos%20I>, <urn:x:Deimos/> .") == [
        ("Mars", "has-moon", "Deimos"),
        ("Mars", "has-moon", "Phobos I"),
    ]


def test_labels_are_preferred_in_the_wanted_language() -> None:
    text = """
      :m :r :s . :m rdfs:label "le Mars"@fr, "Mars  planet"@en-GB, "mars" .
      :r skos:prefLabel "Revolves Around"@en . :s skos:prefLabel "Sol"@la .
    """

    assert facts(text) == [("Mars planet", "revolves-around", "Sol")]
    assert facts(text, language="fr") == [("le Mars", "revolves-around", "Sol")]
    assert skips(text) == {"label": 5}


def test_types_and_subclasses_of_rdf_become_facts_that_rules_use() -> None:
    text = """
      :Dog a owl:Class ; rdfs:subClassOf :Mammal . :Mammal rdfs:subClassOf :Animal .
      :Rex a :Dog . :Tail :isPartOf :Dog . :isPartOf a owl:ObjectProperty .
    """
    graph = MemoryGraph(read(PREFIXES + text).triples)

    assert facts(text) == [
        ("Dog", "subclass-of", "Mammal"),
        ("Mammal", "subclass-of", "Animal"),
        ("Rex", "is-a", "Dog"),
        ("Tail", "part-of", "Dog"),
    ]
    assert skips(text) == {"schema": 2}
    assert ("Rex", "is-a", "Animal") in [
        (inference.triple.subject, inference.triple.predicate, inference.triple.object)
        for inference in infer(graph)
    ]


def test_terms_of_the_same_name_become_distinct_symbols() -> None:
    text = (
        ':Mars :near :Sun . other:Mars :near <http://else.org/Mars> . other:Sol rdfs:label "Sun" .'
    )

    assert facts(text) == [
        ("Mars (other)", "near", "Mars <http://else.org/Mars>"),
        ("Mars <http://example.org/sky#Mars>", "near", "Sun <http://example.org/sky#Sun>"),
    ]


def test_literals_become_symbols_of_their_text() -> None:
    text = """
      :Mars :radius 3389.5 ; :moons 2 ; :seen true ; :note " red " ; :note "rot"@de, "red one"@en ;
        :found "1609-01-01"^^xsd:date ; :empty "" ; :long "LONG" .
    """.replace("LONG", "x" * 1001)

    assert facts(text) == [
        ("Mars", "found", "1609-01-01"),
        ("Mars", "moons", "2"),
        ("Mars", "note", "red"),
        ("Mars", "note", "red one"),
        ("Mars", "radius", "3389.5"),
        ("Mars", "seen", "true"),
    ]
    assert skips(text) == {"language": 1, "unfit": 2}


def test_explanations_are_taken_only_when_they_are_wanted() -> None:
    text = ':Mars rdfs:comment "It is red."@en ; skos:definition "A planet." ; :colour "red" .'

    assert facts(text) == [("Mars", "colour", "red")]
    assert skips(text) == {"prose": 2}
    assert [fact[2] for fact in facts(text, prose=True)] == ["red", "It is red.", "A planet."]


def test_of_blank_nodes_nothing_is_taken() -> None:
    text = """:Mars :orbit [ :period 687 ] ; :moons ( :Phobos :Deimos ) . _:x :y :z . :a :b :c ."""

    assert facts(text) == [("a", "b", "c")]
    assert skips(text) == {"blank-node": 8}


def test_a_file_cannot_say_how_the_agent_works() -> None:
    text = """
      mine:goal%3A1 mine:agent%3Ahas_status mine:Completed .
      :a :b :c . :b rdfs:label "agent:x" .
    """

    assert facts(text) == []
    assert skips(text) == {"label": 1, "metadata": 2}


FACTS = (
    Triple(subject="Mars", predicate="is-a", object="Planet"),
    Triple(subject="Mars (planet) #4", predicate="has moon", object="Phobos/I"),
    Triple(subject="Mars", predicate="near", object="Jupiter", confidence=0.123456789),
    Triple(subject="Mars", predicate="near", object="Venus", confidence=1e-7, source="seen"),
    Triple(subject="is-a", predicate="near", object='"quoted"\n\u00e4\u4e2d \\ <x>'),
    Triple(subject="planet", predicate="subclass-of", object="https://example.org/x", source="s"),
    Triple(subject="Planet", predicate="is_a", object="  spaced  ", confidence=0.0),
)


def test_facts_survive_a_round_trip_through_turtle() -> None:
    ordered = sorted(FACTS, key=lambda fact: (fact.subject, fact.predicate, fact.object))

    assert list(read(write(FACTS)).triples) == ordered


LABELS = st.text(st.characters(codec="utf-8", exclude_characters="\x1f"), min_size=1, max_size=20)


@given(LABELS, LABELS, LABELS, st.floats(0, 1))
def test_any_label_and_confidence_comes_back(
    subject: str, predicate: str, object_: str, confidence: float
) -> None:
    fact = Triple(subject=subject, predicate=f"p{predicate}", object=object_, confidence=confidence)

    assert read(write([fact])).triples == (fact,)


def test_written_turtle_is_deterministic_and_uses_standard_terms() -> None:
    text = write(FACTS)

    assert write(reversed(FACTS)) == text
    assert ":Mars a :Planet .\n" in text
    assert "rdfs:subClassOf" in text
    assert "boyd:confidence 0.123456789" in text
    assert "boyd:confidence 0.0000001" in text
    assert 'rdfs:label "Mars (planet) #4"' in text


def test_the_parts_of_a_text_can_be_read_one_by_one() -> None:
    text = HEADER + PART.join(statements([fact]) for fact in FACTS)

    assert [read(part).triples for part in parts(text)] == [(fact,) for fact in FACTS]
    assert set(read(text).triples) == set(FACTS)
    assert parts("<a> <b> <c> .") == ["<a> <b> <c> ."]


def test_facts_about_the_agent_are_not_written() -> None:
    about = Triple(subject="goal:1", predicate="agent:has_status", object="Active")

    assert read(write([about])).triples == ()
    assert "agent" not in write([about])


def test_a_source_is_given_to_facts_that_have_none() -> None:
    text = write([FACTS[0], FACTS[3]])
    facts_by_object = {triple.object: triple for triple in read(text, source="sky.ttl").triples}

    assert facts_by_object["Planet"].source == "sky.ttl"
    assert facts_by_object["Venus"].source == "seen"


def test_a_confidence_that_is_none_is_nothing_to_rely_on() -> None:
    note = "[] rdf:subject :a ; rdf:predicate :b ; rdf:object :c ; boyd:confidence "

    for wrong in ("7", '"high"', "-0.1", '"NaN"^^xsd:double'):
        [fact] = read(f"{PREFIXES} :a :b :c . {note} {wrong} .").triples
        assert fact.confidence == 0.0


def test_of_facts_that_are_named_the_same_the_surest_counts() -> None:
    unsure = "[] rdf:subject :a ; rdf:predicate :hasB ; rdf:object :c ; boyd:confidence 0.5 ."
    [fact] = read(f"{PREFIXES} :a :hasB :c ; other:has_b :c . {unsure}").triples

    assert (fact.predicate, fact.confidence) == ("has-b", 1.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@prefix : <http://x/> .\n:a :b\n", "line 2 is not Turtle: objectList expected"),
        ("\n\n:a <b> <c> .", "line 3 is not Turtle: Prefix"),
        ("<a> <b> <c>", "ends in the middle"),
        ("<a> <b> <c> .\n\n\n<d>\n  \u00fc @@ .", "line 5 is not Turtle"),
        ("not turtle", "line 1 is not Turtle"),
        ('<a> <b> "open', "is not Turtle"),
        ("(" * 5000, "nests too deeply"),
        ("[" * 5000, "nests too deeply"),
        (b'<a> <b> "\xff" .', "not UTF-8"),
        ("<a> <b> 1, 2, 3, 4 .", "more than 3 triples"),
        ("#" * 10_001, "10001 bytes, and at most 10000"),
    ],
)
def test_unreadable_turtle_is_refused_with_the_reason(text: str | bytes, message: str) -> None:
    with pytest.raises(TurtleError, match=message):
        read(text, max_triples=3, max_bytes=10_000)


@pytest.mark.parametrize(
    "write_text",
    [
        lambda size: "\n" * size,
        lambda size: "prefix a: <http://x/> " * (size // 22),
        lambda size: "".join(f"@prefix p{n}: <http://x/{n}/> .\n" for n in range(size // 32)),
    ],
    ids=["blank lines", "one prefix", "many prefixes"],
)
def test_blank_lines_and_prefixes_take_time_in_proportion(write_text: Callable[[int], str]) -> None:
    assert growth(read, write_text, 200_000) < MOST


@pytest.mark.long
def test_turtle_read_in_a_subprocess_gives_the_same_facts() -> None:
    text = PREFIXES + "".join(f":a{n} :b :c . " for n in range(1200)) + ":a rdfs:label 'x' ."

    assert turtle.read_apart(text, source="s") == read(text, source="s")
    with pytest.raises(TurtleError, match="line 1 is not Turtle"):
        turtle.read_apart("not turtle")


@pytest.mark.long
@pytest.mark.parametrize(
    "number", ["1E9999999999", "1E-9999999999", "1E999999999999999"], ids=["large", "small", "huge"]
)
def test_a_number_of_a_billion_digits_is_refused(number: str) -> None:
    text = f'<a> <b> "{number}"^^<http://www.w3.org/2001/XMLSchema#decimal> .'

    with pytest.raises(TurtleError):
        turtle.read_apart(text)


def test_reading_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turtle, "MAX_SECONDS", 0.01)

    with pytest.raises(TurtleError, match=r"took longer than 0\.01 s"):
        turtle.read_apart("<a> <b> <c> .")


def test_as_much_as_is_allowed_is_read() -> None:
    assert len(read("<a> <b> 1, 2, 3 .", max_triples=3).triples) == 3
    assert read("").triples == ()
    assert len(read(b"\xef\xbb\xbf<a> <b> <c> .").triples) == 1


def test_nothing_is_ever_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*args: object, **options: object) -> None:
        raise AssertionError("it wants to connect")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, connect)
    monkeypatch.setattr("builtins.open", connect)
    text = """
      @base <http://example.org/base/> . @prefix far: <http://example.org/far.ttl#> .
      <> <http://www.w3.org/2002/07/owl#imports> <http://example.org/far.ttl>, <local.ttl> ;
        <http://www.w3.org/2000/01/rdf-schema#seeAlso> far:x .
    """

    assert len(read(text).triples) == 3


@pytest.mark.parametrize("text", [json.dumps({"@context": "http://x/", "@id": "y"}), "<rdf:RDF/>"])
def test_other_formats_are_refused(text: str) -> None:
    with pytest.raises(TurtleError):
        read(text)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdflib", None)

    with pytest.raises(ConfigError, match=r"need rdflib.*pip install 'boyd\[goals\]'"):
        turtle.read("")
    assert turtle.write(FACTS)
