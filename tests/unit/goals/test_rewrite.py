"""Expressions in their simplest form: `reason`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boyd_goals.knowledge.reasoning import (
    DEEPEST,
    LONGEST,
    Expression,
    ExpressionError,
    Step,
    parse,
    reason,
    show,
)


@pytest.mark.parametrize("operator", ["bind", "bundle", "similar", "and", "or"])
def test_the_operands_of_five_operators_may_change_places(operator: str) -> None:
    assert reason(f"({operator} b a)").expression == f"({operator} a b)"
    assert reason(f"({operator} b a)").steps == (
        Step("commute", f"({operator} b a)", f"({operator} a b)"),
    )
    assert reason(f"({operator} a b)").steps == ()


@pytest.mark.parametrize(
    "text",
    ["(bind a (bind a b))", "(bind a (bind b a))", "(bind (bind a b) a)", "(bind (bind b a) a)"],
)
def test_binding_twice_undoes_itself(text: str) -> None:
    assert reason(text).expression == "b"


def test_not_twice_is_nothing() -> None:
    assert reason("(not (not a))").expression == "a"
    assert reason("(not (not (not a)))").expression == "(not a)"


def test_rules_are_applied_inside_and_to_what_they_lead_to() -> None:
    assert reason("(and z (not (not (bind y (bind (or q p) y)))))").expression == "(and z (or p q))"
    assert reason("(bind (and x y) (bind c (and y x)))").expression == "c"


def test_each_rewriting_step_is_listed() -> None:
    assert [step.rule for step in reason("(not (not (bind a (bind b a))))").steps] == [
        *("commute", "unbind", "double negation"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        *("a", "(triple Mars orbits Sun)", "(bind a (bind b c))", "(not a)", "(not)", "(bind a)"),
        *("(bind a (bind a b) c)", "(implies b a)", "(bundle c b a)", "((f x) y)", '"bind b"'),
    ],
)
def test_anything_else_is_left_as_it_is(text: str) -> None:
    assert reason(text).expression == text
    assert reason(text).steps == ()


def test_labels_with_blanks_stand_in_quotes() -> None:
    assert parse('(is-a "Air \\"hot\\" (sensor)" b\\c)') == ("is-a", 'Air "hot" (sensor)', "b\\c")
    assert reason(' ( and "b c"\n"a\\\\b" ) ').expression == '(and "b c" a\\b)'


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("", "nothing to read", 1),
        ("   ", "nothing to read", 1),
        ("(a", "a parenthesis that is not closed", 1),
        ("(a (b)", "a parenthesis that is not closed", 1),
        ("(a (b", "a parenthesis that is not closed", 4),
        (")", "a parenthesis that was not opened", 1),
        ("(a))", "more after the end", 4),
        ("a b", "more after the end", 3),
        ("(a) (b)", "more after the end", 5),
        ("(a ())", "an empty list", 4),
        ('(a  "b)', "a quote that is not closed", 5),
        ("(" * (DEEPEST + 1), "nests deeper than 100", DEEPEST + 1),
        ("a" * (LONGEST + 1), "longer than 10000", LONGEST + 1),
    ],
)
def test_an_error_says_where_it_is(text: str, message: str, position: int) -> None:
    with pytest.raises(ExpressionError, match=f"{message}.* at character {position}$") as error:
        reason(text)

    assert error.value.position == position


def test_the_deepest_expression_is_read() -> None:
    text = "(not " * DEEPEST + "a" + ")" * DEEPEST

    assert reason(text).expression == "a"


ATOMS = st.sampled_from(["a", "b", "c", "d e", '"', "\\"])
EXPRESSIONS: st.SearchStrategy[Expression] = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["bind", "and", "or", "triple"]), inner, inner),
    ),
    max_leaves=12,
)


def shuffle(expression: Expression) -> Expression:
    """The same by the rules: all operands swapped, all atoms negated twice."""
    match expression:
        case (("bind" | "and" | "or") as operator, one, other):
            return (operator, shuffle(other), shuffle(one))
        case (head, *parts):
            return (head, *(shuffle(part) for part in parts))
    return ("not", ("not", expression))


@given(EXPRESSIONS)
def test_a_printed_expression_can_be_parsed(expression: Expression) -> None:
    assert parse(show(expression)) == expression


@given(EXPRESSIONS)
def test_equivalent_expressions_have_one_simplest_form(
    expression: Expression,
) -> None:
    simplest = reason(show(expression)).expression

    assert reason(show(shuffle(expression))).expression == simplest
    assert reason(simplest).steps == ()
    assert reason(show(("bind", "c", ("bind", expression, "c")))).expression == simplest
