"""A graph as Turtle, in parts that one answer holds (M11)."""

from __future__ import annotations

import base64
import json

from boyd.goals.answering import Refused
from boyd.goals.knowledge import turtle
from boyd.goals.replies import Exported
from boyd.models import Triple
from boyd.models.graph import Place
from boyd.plugin import Graph

#: A part ends when it has so many characters, and facts are read in steps of so many.
CHARS, STEP = 500_000, 200


def exported(graph: Graph, after: str | None) -> Exported:
    """The part of the graph that begins *after* a place; None: the first one.

    Raises:
        Refused: no part begins there.
    """
    last = None if after is None else _place(after)
    text = [turtle.HEADER if last is None else turtle.PART]
    revision, found = graph.revision(), list[Triple]()
    while found := graph.page(last, STEP):
        text.append(turtle.statements(found))
        last = found[-1].place
        if sum(map(len, text)) >= CHARS:
            break
    following = _cursor(last) if last and found and graph.page(last, 1) else None
    return Exported(turtle="".join(text), next=following, revision=revision)


def _cursor(place: Place) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _place(cursor: str) -> Place:
    try:
        subject, predicate, object_ = json.loads(base64.urlsafe_b64decode(cursor))
        return Triple(subject=subject, predicate=predicate, object=object_).place
    except (TypeError, ValueError):
        raise Refused(422, "after: no part begins there") from None
