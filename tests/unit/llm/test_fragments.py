"""Pieces of tool calls become calls again, however servers cut them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boyd.llm.messages import CallFragment, parse_arguments, sendable_arguments
from boyd.llm.turn_accumulator import CallFragments
from boyd.models.investigation import ToolCall


def merge_fragments(*fragments: CallFragment, ids: set[str] | None = None) -> list[ToolCall]:
    all_ = CallFragments()
    for fragment in fragments:
        all_.add(fragment)
    return all_.calls(ids or set(), "made")


def piece(
    index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = None
) -> CallFragment:
    return CallFragment(index, id, name, arguments)


A = ToolCall(id="a", name="read", arguments='{"path":"/a"}')
B = ToolCall(id="b", name="read", arguments='{"path":"/b"}')


def test_pieces_with_an_index_are_merged_by_it() -> None:
    assert merge_fragments(
        piece(0, "a", "read", ""),
        piece(1, "b", "read", ""),
        piece(0, arguments='{"path":'),
        piece(1, arguments='{"path":'),
        piece(0, arguments='"/a"}'),
        piece(1, arguments='"/b"}'),
    ) == [A, B]


def test_another_id_at_the_same_index_is_another_call() -> None:
    assert merge_fragments(
        piece(0, "a", "read", '{"path":'),
        piece(0, None, None, '"/a"}'),
        piece(0, "b", "read", '{"path":'),
        piece(0, None, None, '"/b"}'),
    ) == [A, B]


def test_the_id_decides_when_pieces_of_two_calls_at_one_index_are_mixed() -> None:
    assert merge_fragments(
        piece(0, "a", "read", '{"path":'),
        piece(0, "b", "read", '{"path":'),
        piece(0, "a", None, '"/a"}'),
        piece(0, "b", None, '"/b"}'),
    ) == [A, B]


def test_without_an_index_a_new_id_begins_a_call_and_the_rest_is_appended() -> None:
    assert merge_fragments(
        piece(None, "a", "read", '{"path":'),
        piece(None, None, None, '"/a"}'),
        piece(None, "b", "read", '{"path":'),
        piece(None, None, None, '"/b"}'),
    ) == [A, B]


@pytest.mark.parametrize("index", [None, 0])
def test_with_neither_id_nor_number_of_its_own_a_name_after_whole_arguments_begins_a_call(
    index: int | None,
) -> None:
    calls = merge_fragments(
        piece(index, None, "read", '{"path":'),
        piece(index, None, None, '"/a"}'),
        piece(index, None, "read", '{"path":"/b"}'),
    )

    assert [call.arguments for call in calls] == [A.arguments, B.arguments]
    assert [call.id for call in calls] == ["made_1", "made_2"]


def test_another_name_begins_a_call_even_when_the_one_before_has_no_arguments() -> None:
    calls = merge_fragments(piece(0, None, "uptime", ""), piece(0, None, "users", ""))

    assert [(call.name, call.arguments) for call in calls] == [("uptime", "{}"), ("users", "{}")]


def test_a_repeated_name_is_not_appended_to_itself() -> None:
    assert merge_fragments(
        piece(0, "a", "read", ""),
        piece(0, "a", "read", '{"path":'),
        piece(0, "a", "read", '"/a"}'),
        piece(0, "a", "read", ""),
    ) == [A]


def test_calls_that_all_have_the_same_id_stay_apart_and_get_ids_of_their_own() -> None:
    by_index = merge_fragments(
        piece(0, "x", "read", '{"path":"/a"}'), piece(1, "x", "read", '{"path":"/b"}')
    )
    by_name = merge_fragments(
        piece(0, "x", "read", '{"path":"/a"}'), piece(0, "x", "read", '{"path":"/b"}')
    )

    for calls in (by_index, by_name):
        assert [call.arguments for call in calls] == [A.arguments, B.arguments]
        assert [call.id for call in calls] == ["x", "made_1"]


def test_another_id_in_every_piece_of_a_call_does_not_tear_it_apart() -> None:
    calls = merge_fragments(
        piece(0, "1", "read", ""), piece(0, "2", None, '{"path":'), piece(0, "3", None, '"/a"}')
    )

    assert [(call.id, call.arguments) for call in calls] == [("1", A.arguments)]


def test_an_id_that_comes_later_is_taken() -> None:
    assert merge_fragments(piece(0, None, "read", ""), piece(0, "a", None, '{"path":"/a"}')) == [A]


def test_ids_of_earlier_turns_are_not_used_again() -> None:
    calls = merge_fragments(
        piece(0, "a", "read", "{}"), piece(1, None, "read", "{}"), ids={"a", "made_1"}
    )

    assert [call.id for call in calls] == ["made_2", "made_3"]


@pytest.mark.parametrize("arguments", ["", None, "  ", {}])
def test_no_arguments_are_an_empty_object(arguments: Any) -> None:
    assert merge_fragments(piece(0, "a", "uptime", arguments))[0].arguments == "{}"


def test_arguments_may_come_as_an_object() -> None:
    [call] = merge_fragments(piece(0, "a", "read", {"path": "/ä"}))

    assert call.arguments == '{"path": "/ä"}'


def test_an_empty_object_before_the_pieces_says_nothing() -> None:
    assert merge_fragments(piece(0, "a", "read", {}), piece(0, None, None, '{"path":"/a"}')) == [A]


def test_arguments_that_are_no_json_stay_as_they_are() -> None:
    assert merge_fragments(piece(0, "a", "read", '{"path": /a'))[0].arguments == '{"path": /a'


def test_characters_that_nothing_can_store_are_replaced() -> None:
    [call] = merge_fragments(
        piece(0, "a", "re\ud83dad", '{"a":"\ud83d'), piece(0, None, None, '\ude00"}')
    )

    assert call.name == "re�ad"
    assert call.arguments == '{"a":"😀"}'


def test_half_a_call_is_noticed() -> None:
    fragments = CallFragments()
    assert fragments.are_complete

    fragments.add(piece(0, "a", "read", '{"path":'))
    assert not fragments.are_complete

    fragments.add(piece(0, None, None, '"/a"}'))
    fragments.add(piece(0, None, None, "\n"))
    assert fragments.are_complete

    fragments.add(piece(1, "b", "read", ""))
    assert not fragments.are_complete


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["read", "write", "uptime"]),
        st.dictionaries(st.text(max_size=5), st.text(max_size=20), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=5,
)


@given(
    commands=CALLS,
    size=st.integers(1, 12),
    has_index=st.sampled_from(["own", "zero", "none"]),
    has_id=st.sampled_from(["first", "each", "none"]),
    has_name=st.sampled_from(["first", "each"]),
)
def test_two_calls_never_melt_into_one_however_they_are_cut(
    commands: list[tuple[str, dict[str, str]]],
    size: int,
    has_index: str,
    has_id: str,
    has_name: str,
) -> None:
    fragments = []
    for at, (name, arguments) in enumerate(commands):
        text = json.dumps(arguments)
        for start in range(0, len(text), size):
            is_first = start == 0
            fragments.append(
                piece(
                    {"own": at, "zero": 0, "none": None}[has_index],
                    f"id{at}" if has_id == "each" or (is_first and has_id == "first") else None,
                    name if is_first or has_name == "each" else None,
                    text[start : start + size],
                )
            )

    calls = merge_fragments(*fragments)

    assert [(call.name, json.loads(call.arguments)) for call in calls] == commands
    assert len({call.id for call in calls}) == len(commands)


@pytest.mark.parametrize(
    "text", ["", "[1]", "nonsense", '{"a": NaN}', '{"a":' * 5000, '{"a":' * 150 + "1" + "}" * 150]
)
def test_unparseable_arguments_are_sent_back_wrapped_in_an_object(text: str) -> None:
    assert parse_arguments(text) is None
    assert json.loads(sendable_arguments(text)) == {"unparseable": text}
