"""The texts of rights: what they cover, and what is none."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from boyd.models import Actor
from boyd.models.actor import GroupRights
from boyd.models.rights import LONGEST, MOST_RIGHTS, RightList, Verb, find_right


@pytest.mark.parametrize(
    ("right", "verb", "action", "target", "covers"),
    [
        ("approve restart:* on web-*", "approve", "restart:nginx", "web-3", True),
        ("approve restart:* on web-*", "approve", "restart:nginx", "db-3", False),
        ("approve restart:* on web-*", "approve", "stop:nginx", "web-3", False),
        ("approve restart:* on web-*", "run", "restart:nginx", "web-3", False),
        ("approve restart:* on web-*", "approve", "restart:nginx", "", False),
        ("approve restart:*", "approve", "restart:nginx", "", True),
        ("approve,rollback a:b", "rollback", "a:b", "x", True),
        ("run a:b", "propose", "a:b", "x", True),
        ("propose a:b", "run", "a:b", "x", False),
        ("* *", "rollback", "a:b", "x", True),
        ("* a:b on rack 7", "run", "a:b", "rack 7", True),
        ("run a:b on web-[12]", "run", "a:b", "web-1", True),
        ("run a:b on web-[12", "run", "a:b", "web-[12", True),
        ("run a:b on web-[12", "run", "a:b", "web-1", False),
        ("run a:b on wéb", "run", "a:b", "wéb", True),
        ("run a:b on wéb", "run", "a:b", "we\u0301b", False),
        ("run a:b on WEB", "run", "a:b", "web", False),
        ("run a:b on web", "run", "a:b", "web\n", False),
        ("run a:b on web*", "run", "a:b", "web\nx", True),
        ("run a:b on .*", "run", "a:b", "x", False),
    ],
)
def test_a_right_covers_what_its_patterns_match(
    right: str, verb: Verb, action: str, target: str, covers: bool
) -> None:
    assert find_right([right], verb, action, target) == (right if covers else None)


@pytest.mark.parametrize(
    "text",
    [
        *("", "approve", "approve  ", "do a:b", "approve,do a:b", ",approve a:b", "approve a:b on"),
        *("approve a:b on ", "approve a:b at web", "approve a:b web", "approve a:b on web\n"),
        *("approve a:b on w\x00", "approve a:b on \u202eweb", "approve\ta:b"),
        "approve a:b on " + "w" * LONGEST,
    ],
)
def test_another_text_is_refused_with_the_form_of_a_right(text: str) -> None:
    with pytest.raises(ValueError, match="write it as `approve k8s:scale on web-"):
        _check(text)


def test_a_key_has_at_most_so_many_rights() -> None:
    _check(*["approve a:b"] * MOST_RIGHTS)
    with pytest.raises(ValueError, match="at most"):
        _check(*["approve a:b"] * (MOST_RIGHTS + 1))


def test_a_right_that_only_a_later_release_knows_allows_nothing() -> None:
    assert find_right(["audit a:b", "run a:b"], "run", "a:b", "x") == "run a:b"
    assert find_right(["audit a:b"], "run", "a:b", "x") is None


def test_a_pattern_of_many_stars_does_not_take_long() -> None:
    right = "run a:b on " + "*a" * 200 + "b"

    assert find_right([right], "run", "a:b", "a" * 5000) is None


def test_the_rights_of_groups_add_up_and_an_empty_group_may_do_nothing() -> None:
    rights = GroupRights({"web": ["approve a:b on web-*"], "db": ["approve a:b on db-*"], "no": []})

    def may(target: str, *groups: str) -> bool:
        actor = Actor(principal="ann", groups=list(groups))
        return rights.judge(actor, "approve", "a:b", target).allowed

    assert may("web-1", "web", "db")
    assert may("db-1", "web", "db")
    assert not may("db-1", "web")
    assert not may("web-1", "no")
    assert may("anything", "unknown")


def _check(*may: str) -> list[str]:
    return TypeAdapter(RightList).validate_python(list(may))
