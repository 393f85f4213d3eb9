"""Rights per action: who may propose, run, approve or roll back which action on which target.

A right is one line, `approve,rollback restart:* on web-*`. The holder of any may do only what one
of them names; without any, scopes alone decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field

from boyd.text.formatting import call_text

Verb = Literal["propose", "run", "approve", "rollback"]
VERBS: tuple[Verb, ...] = get_args(Verb)

#: The most characters of a right, and rights of one key or group.
LONGEST = 500
MOST_RIGHTS = 1000

_FORM = "write it as `approve k8s:scale on web-*`, with any of " + ", ".join(VERBS)


@dataclass(frozen=True)
class _Right:
    text: str
    verbs: frozenset[str]
    action: re.Pattern[str]
    target: re.Pattern[str] | None
    name: str | None


def _parse(text: str) -> _Right:
    if len(text) > LONGEST or not text.isprintable():
        raise ValueError(f"not a right: {_FORM}, in at most {LONGEST} printable characters")
    words, _, rest = text.partition(" ")
    action, on, target = (part.strip() for part in rest.strip().partition(" on "))
    verbs = frozenset(VERBS if words == "*" else words.split(","))
    if not action or " " in action or (on and not target) or not verbs <= frozenset(VERBS):
        raise ValueError(f"not a right: {_FORM}, or `*` for all of them")
    # Whoever may run an action may also ask others for it.
    if "run" in verbs:
        verbs |= {"propose"}
    pattern = re.compile(translate(action))
    if not target:
        return _Right(text, verbs, pattern, None, None)
    name = None if set(target) & set("*?[") else target
    return _Right(text, verbs, pattern, re.compile(translate(target)), name)


def _check(text: str) -> str:
    _parse(text)
    return text


#: The rights of a key or a group, as its settings and the API have them.
RightList = Annotated[list[Annotated[str, AfterValidator(_check)]], Field(max_length=MOST_RIGHTS)]


@lru_cache(maxsize=500)
def _parse_all(rights: tuple[str, ...]) -> list[_Right]:
    """The rights as patterns; what a later release means by another one allows nothing here."""
    parsed = []
    for text in rights:
        with suppress(ValueError):
            parsed.append(_parse(text))
    return parsed


@lru_cache(maxsize=5000)
def _select(
    rights: tuple[str, ...], verb: Verb, action: str
) -> tuple[dict[str, str], list[_Right]]:
    """Those about an action, by target where that is one name, and the others.

    A list of approvals asks for one action on many targets.
    """
    covering = [r for r in _parse_all(rights) if verb in r.verbs and r.action.match(action)]
    by_name = {r.name: r.text for r in covering if r.name is not None}
    return by_name, [right for right in covering if right.name is None]


def find_right(rights: Iterable[str], verb: Verb, action: str, target: str | None) -> str | None:
    """One of the *rights* that covers it; without a *target*, on any target."""
    by_name, patterns = _select(tuple(rights), verb, action)
    if target is None:
        return next(iter([*by_name.values(), *(right.text for right in patterns)]), None)
    fitting = (r.text for r in patterns if r.target is None or r.target.match(target))
    return by_name.get(target) or next(fitting, None)


def select_rights(rights: Iterable[str], action: str) -> list[str]:
    """The rights about an action, whatever the verb and the target."""
    return [right.text for right in _parse_all(tuple(rights)) if right.action.match(action)]


def describe_right(verb: Verb, action: str, target: str | None) -> str:
    """The right that allows just this."""
    return f"{verb} {call_text(action, target)}"
