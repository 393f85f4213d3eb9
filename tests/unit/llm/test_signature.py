"""Signatures: equal for calls that are the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boyd.llm.messages import normalize_command, signature
from costs import MOST, growth


@pytest.mark.parametrize(
    ("value", "other"),
    [
        ({"a": 1, "b": [1, {"c": 2}]}, {"b": [1.0, {"c": 2.0}], "a": 1.0}),
        ({"a": 1e3}, {"a": 1000}),
        ({"a": -0.0}, {"a": 0}),
    ],
)
def test_order_and_the_form_of_numbers_make_no_difference(value: Any, other: Any) -> None:
    assert signature("t", value) == signature("t", other)


@pytest.mark.parametrize(
    ("value", "other"),
    [({"a": 1}, {"a": "1"}), ({"a": 1}, {"a": True}), ({"a": 1.5}, {"a": 1}), ({}, {"a": None})],
)
def test_other_values_do(value: Any, other: Any) -> None:
    assert signature("t", value) != signature("t", other)


def test_the_tool_is_part_of_it_and_the_shell_has_two_names() -> None:
    assert signature("a", {}) != signature("b", {})
    command: Any = {"command": "ls"}
    assert signature("bash", command) == signature("run_command", command)


def test_arguments_of_the_shell_that_make_no_difference_are_left_out() -> None:
    arguments: Any = {"command": "ls", "timeout": 5, "reason": "x", "description": "y"}
    assert signature("bash", arguments) == signature("bash", {"command": "ls"})
    assert signature("bash", {"command": "ls", "workdir": "/"}) != signature("bash", arguments)
    assert signature("other", arguments) != signature("other", {"command": "ls"})


def test_text_that_is_no_json_is_compared_as_it_is() -> None:
    assert signature("t", '{"a":') == signature("t", '{"a": '.strip())
    assert signature("t", '{"a":') != signature("t", '{"b":')
    assert signature("t", "{}") != signature("t", {})


@pytest.mark.parametrize(
    ("command", "normal"),
    [
        ("  ls \t -l  ", "ls -l"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("echo  'a  b'   \"c  d\"  e", "echo 'a  b' \"c  d\" e"),
        (r"echo  a\ \ b   c", r"echo a\ \ b c"),
        (r'echo "a \"  b"   c', r'echo "a \"  b" c'),
        ("echo   it's  open   here", "echo it's  open   here"),
        ("cat  <<E\n  a\n    b\nE", "cat <<E\n  a\n    b\nE"),
        ("cat   <<<   x   y", "cat <<< x y"),
        ("LS  -L", "LS -L"),
    ],
)
def test_blanks_of_a_command_are_collapsed_outside_quotes(command: str, normal: str) -> None:
    assert normalize_command(command) == normal


@given(st.text(alphabet=" \t\n'\"\\<ab$", max_size=40))
def test_a_normal_command_is_normal(command: str) -> None:
    once = normalize_command(command)
    assert normalize_command(once) == once
    assert "".join(once.split()) == "".join(command.split())


@pytest.mark.parametrize("seed", ["'", '"', "\\", "<<a", "a ", '"\\', "<<<"])
def test_a_long_command_takes_no_longer_than_its_length(seed: str) -> None:
    assert growth(normalize_command, lambda size: seed * size, 300_000) < MOST


def test_half_a_character_is_no_error() -> None:
    assert len(signature("t", {"a": "\ud800"})) == len(signature("t", "\ud800")) == 64
