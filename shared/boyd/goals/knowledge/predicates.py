"""The labels that have a meaning to Boyd, and how predicates are spelled."""

from __future__ import annotations

import re

#: What the symbol of a goal begins with.
GOAL = "goal:"

IS_A = "is-a"
SUBCLASS_OF = "subclass-of"
PART_OF = "part-of"
HAS_A = "has-a"
SIMILAR_TO = "similar-to"
PARENT_OF = "parent-of"
CHILD_OF = "child-of"
CONTAINS = "contains"
#: What comes to mind with something: no more than that, so that no rule knows it.
RELATED_TO = "related-to"

_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN = re.compile(r"[\s_-]+")


def canonical(predicate: str) -> str:
    """`isPartOf`, `part of` and `part_of` as `part-of`: lower case, joined by hyphens.

    Rules only know predicates in this form, so it is how new facts should be written. What begins
    with `agent:` is left as it is.
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
