"""The reader of findings: sentence by sentence, what speaks for or against a criterion.

A criterion that names a topic, such as "mammals", is met by words. One that claims something, such
as "the backup is complete" or "3 replicas", is met by a statement that says the same: of the same
subject, with the same numbers, as often negated, and neither asked, planned nor doubted. What
cannot be decided does not meet it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from boyd.text.tokenizer import STOP
from boyd_goals import criteria as words_of
from boyd_goals.criteria import (
    Criterion,
    base_of,
    count_negations,
    has_verb,
    is_identifier,
    is_number,
    is_state,
    normalize,
    parts_of_word,
    read_criterion,
    split_tokens,
    split_word,
)

_QUOTED = re.compile(r"\"[^\"\s]*\s[^\"]*\"|(?<!\w)'[^'\s]*\s[^']*'(?!\w)")
_NAMED = re.compile(r"\"[^\"\s]+\"")
_SENTENCES = re.compile(r"(?<=[.!?;\u061f])\s+(?!\()|(?<=[\u3002\uff01\uff1f])|\u0964")
_CONTRASTS = re.compile(r"\b(?:but|however|although|though|whereas|which|who)\b", re.IGNORECASE)
_DENIAL = re.compile(r"\W*not (?:an?|the|in|on|at)\b", re.IGNORECASE)
_ASIDE = re.compile(r"\(([^()]*)\)")
_PAUSES = re.compile(r"([,()\[\]]|\band\b)", re.IGNORECASE)
_PART_OF = re.compile(r"\b(\d+)\s*(?:of|out of|/)\s*(?:the )?(\d+)\b")
#: A number of what was named before, as in "3 replicas, 2 are ready".
_COUNT_THAT_IS = re.compile(r"(?<![\w.-])(\d+(?:\.\d+)?) (?:is|are|was|were|has|have)\b")
_PRONOUN = re.compile(r"\b(?:it|they|this|that|which)\b")
#: Characters of a line that may go on in the next one.
_WRAPPED = 60
#: What items of a list begin with.
BULLETS = ("-", "*", "\u2022")
#: The most words between a number and what it counts.
_NEAR = 3


class Statement(NamedTuple):
    """A clause, in the sentence and the line that it is part of."""

    text: str
    sentence: str
    line: str

    @property
    def tokens(self) -> tuple[str, ...]:
        """Its words."""
        return split_tokens(self.text)

    @property
    def bases(self) -> list[str]:
        """Its words in their basic form; empty where "on" or "up" is no state."""
        sequence = self.tokens
        return [
            base_of(token) if is_state(sequence, position) else ""
            for position, token in enumerate(sequence)
        ]


class Reading(NamedTuple):
    """The result of reading a finding for a criterion.

    Attributes:
        words: those of the criterion that it has, in statements that are not against it.
        lines: those with the words.
        is_met: it says what the criterion claims; for a topic, always true.
        is_against: it says the opposite, too.
    """

    words: frozenset[str]
    lines: Sequence[str]
    is_met: bool
    is_against: bool


# --- Splitting -----------------------------------------------------------------------------------


@lru_cache(maxsize=2048)
def split_statements(text: str) -> tuple[Statement, ...]:
    """The statements of a text: its clauses, without quotations of several words."""
    return tuple(
        Statement(clause, f"{heading} {sentence}".strip(), line)
        for heading, line in _lines_in(text)
        for sentence in map(str.strip, _SENTENCES.split(_QUOTED.sub(" ", normalize(line))))
        for clause in _clauses_of(sentence)
    )


def _lines_in(text: str) -> Iterator[tuple[str, str]]:
    """The lines of a text, with wrapped ones joined, each with its heading if it is an item."""
    heading, line = "", ""
    for following in (*map(str.strip, text.splitlines()), ""):
        if len(line) > _WRAPPED and following[:1].islower():
            line = f"{line} {following}"
            continue
        is_item = line.startswith(BULLETS)
        if line:
            yield normalize(heading) if is_item else "", line
        if line and not is_item:
            heading = line if line.endswith(":") else ""
        line = following


def _clauses_of(sentence: str) -> Iterator[str]:
    for contrast in _CONTRASTS.split(sentence):
        yield from _clauses(contrast)


def _clauses(text: str) -> list[str]:
    """The clauses between pauses; a part without a verb belongs to what follows."""
    parts = _PAUSES.split(text)
    clauses, current, is_whole = list[str](), list[str](), False
    for part, pause, following in zip(
        parts[::2], [*parts[1::2], ""], [*parts[2::2], ""], strict=True
    ):
        current.append(part.strip())
        is_whole = is_whole or has_verb(part)
        if is_whole and (pause.lower() != "and" or has_verb(following)):
            clauses.append(" ".join(filter(None, current)))
            current, is_whole = [], False
        elif pause.lower() == "and":
            current.append(pause)
    return [clause for clause in (*clauses, " ".join(filter(None, current))) if clause]


# --- Reading -------------------------------------------------------------------------------------


def read(criterion: Criterion, lines: Iterable[str], day: date) -> Reading:
    """Read the lines of a finding; what has ended before the *day* is over."""
    statements = [item for line in lines for item in split_statements(line)]
    if criterion.is_strict:
        return _read_strictly(criterion, statements, day)
    met: dict[str, set[str]] = {}
    against = frozenset[str]()
    for statement in statements:
        words = _words_in(criterion, statement)
        if not words or _is_open(criterion, statement) or _is_reversed(criterion, statement):
            continue
        if not criterion.is_about and count_negations(_without_well(criterion, statement)):
            against = max(against, words, key=len)
        else:
            met.setdefault(statement.line, set()).update(words)
    every = frozenset().union(*met.values())
    is_against = bool(against) and len(against) >= min(2, len(criterion.words))
    return Reading(every, list(met), True, is_against)


def _read_strictly(criterion: Criterion, statements: Sequence[Statement], day: date) -> Reading:
    """Read statements of which one must say it all."""
    best, line, is_against, has_subject = frozenset[str](), "", False, False
    for statement in statements:
        words = _words_in(criterion, statement)
        is_same = criterion.subject <= words or (has_subject and _goes_on(statement))
        has_subject = has_subject or criterion.subject <= words
        if _is_open(criterion, statement):
            continue
        is_end = has_subject and words_of.ENDS.match(statement.text.casefold())
        is_over = (is_same or is_end) and _is_over(criterion, statement, day)
        if is_over or (is_same and _contradicts(criterion, statement, words)):
            is_against = True
        elif len(words) > len(best) and _supports(criterion, statement):
            best, line = words, statement.line
    mandatory = criterion.names
    if criterion.is_claim:
        mandatory = frozenset(criterion.words) - criterion.general
    is_met = bool(best) and mandatory <= best
    return Reading(best, [line] if best else [], is_met, is_against)


def _is_over(criterion: Criterion, statement: Statement, day: date) -> bool:
    """True if what a claim is about has ended, as in "valid until 2019", which is not the claim."""
    if not criterion.is_claim or criterion.is_negated or words_of.OWN_ENDS.search(criterion.text):
        return False
    return words_of.ends_before(statement.sentence, day)


def _goes_on(statement: Statement) -> bool:
    """True if a statement names no subject of its own, as in "and down"."""
    plain = STOP | words_of.VERBS | words_of.NEGATIONS | words_of.OPPOSITES.keys() | {""}
    return bool(_PRONOUN.search(statement.text.casefold())) or plain.issuperset(statement.bases)


_NOTHING = read_criterion("", "", frozenset())


def is_done(output: str) -> bool:
    """True unless the output of an action says that it has not done it, or not all of it."""
    records = [line for lines in lines_of(output) for line in lines]
    for statement in (
        item for line in records or output.splitlines() for item in split_statements(line)
    ):
        low = _without_well(_NOTHING, statement)
        if count_negations(low) or words_of.UNDONE.search(low) or words_of.PARTIAL.search(low):
            return False
        bases = statement._replace(text=low).bases
        if _is_open(_NOTHING, statement) or _is_partial(_NOTHING, statement):
            return False
        if not words_of.BAD.isdisjoint(bases):
            return False
    return True


def _words_in(criterion: Criterion, statement: Statement) -> frozenset[str]:
    """The words of the criterion that a statement has; a number only if it counts the same."""
    others = {
        number for number, counted in criterion.numbers if _count_in(statement, counted) != number
    }
    return frozenset(criterion.words) & _forms(criterion, statement) - others


def _forms(criterion: Criterion, statement: Statement) -> set[str]:
    """The words of a statement, with the parts of its compounds.

    A claim about `payment` is none about `payment-db`: there, the parts of a compound count only if
    the criterion names all of them.
    """
    forms: set[str] = set()
    bases = statement.bases
    own = {part for word in criterion.words for part in (word, *parts_of_word(word))}
    own |= words_of.GENERAL | STOP
    for token, base in zip(statement.tokens, bases, strict=True):
        if not base:
            continue
        forms.add(base)
        parts = parts_of_word(token) if not is_number(token) else ()
        if not criterion.is_claim or (own.issuperset(parts) and not is_identifier(token)):
            forms |= {part for part in parts if part not in STOP}
    joined = f" {' '.join(bases)} "
    for word in criterion.names:
        if not is_identifier(word) and f" {' '.join(parts_of_word(word))} " in joined:
            forms.add(word)
    return forms


def _count_in(statement: Statement, counted: str) -> str | None:
    """The number nearest to a word, in front of it rather than behind it; None without any."""
    values = [words_of.NUMBERS.get(token.casefold(), token) for token in statement.tokens]
    numbers = [position for position, value in enumerate(values) if is_number(value)]
    if not counted:
        return values[numbers[0]] if len(numbers) == 1 else None
    places = [
        position
        for position, token in enumerate(statement.tokens)
        if counted == base_of(token) or counted in parts_of_word(token)
    ]
    distances = [
        (abs(number - place), number > place, values[number])
        for place in places
        for number in numbers
        if abs(number - place) <= _NEAR
    ]
    return min(distances)[2] if distances else None


def _without_well(criterion: Criterion, statement: Statement) -> str:
    """The statement in lower case, without phrases such as "no errors"."""
    low = statement.text.casefold()

    def drop(match: re.Match[str]) -> str:
        noun = match["noun"]
        return match[0] if noun and noun in criterion.text else " "

    return words_of.WELL.sub(drop, low)


class _Signs(NamedTuple):
    """The words of a sentence because of which its clauses do not say that something is so."""

    is_question: bool
    plans: frozenset[str]
    hedges: frozenset[str]
    is_partial: bool
    condition: re.Match[str] | None


@lru_cache(maxsize=2048)
def _signs(sentence: str) -> _Signs:
    low = sentence.casefold()
    return _Signs(
        is_question=words_of.QUESTION.search(low) is not None,
        plans=frozenset(match[0] for match in words_of.OPEN.finditer(low)),
        hedges=frozenset(match[0] for match in words_of.HEDGES.finditer(low)),
        is_partial=words_of.PARTIAL.search(low) is not None,
        condition=words_of.CONDITIONS.search(low),
    )


def _is_open(criterion: Criterion, statement: Statement) -> bool:
    """True if the sentence asks something, or speaks of what is not so yet."""
    signs = _signs(statement.sentence)
    return signs.is_question or any(plan not in criterion.text for plan in signs.plans)


def _is_doubtful(criterion: Criterion, statement: Statement) -> bool:
    """True if a sentence makes its claim doubtful, partial, conditional, past or second-hand."""
    signs = _signs(statement.sentence)
    if any(hedge not in criterion.text for hedge in signs.hedges):
        return True
    return (signs.is_partial and not criterion.numbers) or _is_conditional(criterion, statement)


def _is_conditional(criterion: Criterion, statement: Statement) -> bool:
    """True if a condition stands in front of the statement, as in "once it is restarted"."""
    condition = _signs(statement.sentence).condition
    if condition is None or condition[0] in criterion.text:
        return False
    low = condition.string
    if condition.start() > max(low.find(statement.text.casefold()), 0):
        return False
    if condition[0] not in ("after", "before"):
        return True
    # "After the restart, it is up" says so; "after it is up" does not.
    places = (low.find(word, condition.end()) for word in criterion.words)
    between = low[condition.end() : min((place for place in places if place > 0), default=0)]
    return "," not in between or has_verb(between)


def _contradicts(criterion: Criterion, statement: Statement, words: frozenset[str]) -> bool:
    """True if a statement about the subject, with those *words*, says the opposite."""
    if statement.tokens and words_of.NEGATIONS.issuperset(map(str.casefold, statement.tokens)):
        return not criterion.is_negated
    low = _without_well(criterion, statement)
    is_negated = count_negations(low) % 2 == 1
    if _has_opposite(criterion, statement):
        return is_negated == criterion.is_negated
    if not is_negated and _is_spoilt(criterion, statement._replace(text=low)):
        return True
    counts = ((number, _count_in(statement, counted)) for number, counted in criterion.numbers)
    if any(count not in (None, number) for number, count in counts):
        return True
    return criterion.states <= words and is_negated != criterion.is_negated


def _has_opposite(criterion: Criterion, statement: Statement) -> bool:
    """True if a statement has the opposite of a word of the criterion."""
    parts = (part for token in statement.tokens for part in parts_of_word(token))
    bases = {*statement.bases, *parts}
    opposites = {opposite for state in criterion.states for opposite in words_of.OPPOSITES[state]}
    opposites |= {f"{prefix}{word}" for word in criterion.words for prefix in words_of.UN}
    return not bases.isdisjoint(opposites - {*criterion.words})


def _is_spoilt(criterion: Criterion, statement: Statement) -> bool:
    """True if a statement only says of a good state's subject that it is in a bad one."""
    if not criterion.states or criterion.is_negated or not words_of.BAD.isdisjoint(criterion.words):
        return False
    own = {*criterion.words, *words_of.PLAIN, *STOP}
    others = {base_of(token) for token in statement.tokens} - own
    return bool(others) and others <= words_of.BAD


def _supports(criterion: Criterion, statement: Statement) -> bool:
    """True if a statement says the same as the criterion, as far as it goes."""
    low = _without_well(criterion, statement)
    bases, count = statement._replace(text=low).bases, count_negations(low)
    if _is_reversed(criterion, statement) or count > 1 or (count == 1) != criterion.is_negated:
        return False
    if not criterion.is_claim:
        return True
    if _is_doubtful(criterion, statement) or _is_partial(criterion, statement):
        return False
    if any(word in words_of.BAD and word not in criterion.words for word in bases):
        return False
    failure = words_of.ERROR_STATUS.search(low)
    if failure and failure[0] not in criterion.text:
        return False
    if _is_not_now(criterion, statement) or _has_strange_word(criterion, statement):
        return False
    return _compares(criterion, low) and not _has_other_subject(criterion, statement)


def _is_not_now(criterion: Criterion, statement: Statement) -> bool:
    """True if something was or will be in a state; "it was closed" says that it is."""
    low = statement.text.casefold()
    if not criterion.states:
        return False
    tokens = split_tokens(low)
    if words_of.PAST.search(low) or words_of.IN_A_WHILE.search(low):
        return not any(token.endswith("ed") for token in tokens)
    # "It completes at noon" is a plan, "it completed at noon" is not.
    return any(token in words_of.EVENTS and token not in criterion.text for token in tokens)


def _has_strange_word(criterion: Criterion, statement: Statement) -> bool:
    """True if a word in or beside a claim may take it back, as in "presumably it is up"."""
    asides = {
        clause for aside in _ASIDE.findall(statement.sentence) for clause in _clauses_of(aside)
    }
    for clause in _clauses_of(statement.sentence):
        is_own = clause == statement.text
        part = statement._replace(text=_plain_text(clause))
        if is_own or clause in asides or not has_verb(clause) or _goes_on(part):
            if _DENIAL.match(clause) and not is_own:
                continue
            if any(
                _is_strange(criterion, part, place, is_own) for place in range(len(part.tokens))
            ):
                return True
    return False


def _plain_text(clause: str) -> str:
    """A clause without names in quotes, addresses, paths, and phrases such as "no errors"."""
    return words_of.without_places(_NAMED.sub(" ", words_of.WELL.sub(" ", clause)))


def _is_strange(criterion: Criterion, part: Statement, place: int, is_own: bool) -> bool:
    """True if the word there neither belongs to the claim nor leaves it as it is."""
    token = part.tokens[place]
    low, base = token.casefold(), base_of(token)
    own = {*criterion.words, *split_tokens(criterion.text)}
    if low in words_of.PLAIN or base in words_of.PLAIN or not own.isdisjoint((low, base)):
        return False
    if is_number(base) or (is_identifier(token) and is_own):
        return False
    parts = {base_of(part) for part in split_word(token)}
    if parts <= own.union(words_of.PLAIN, *map(parts_of_word, criterion.words)):
        return False
    if base in words_of.OPPOSITES and (is_own or criterion.states) and base not in words_of.BAD:
        return False
    behind = part.tokens[place + 1 : place + 2]
    if place > 0:
        is_name = token[0].isupper() and not part.text.isupper()
        return not (is_name or part.tokens[place - 1] == "0")
    # Somebody or something of which the criterion does not speak, as in "Ann closed the ticket".
    is_subject = token.isalpha() and bool(behind) and _is_predicate(criterion, behind[0])
    return not (is_own and is_subject and not low.endswith("ly"))


def _is_predicate(criterion: Criterion, token: str) -> bool:
    """True if something is said of the word in front."""
    base = base_of(token)
    if criterion.states:
        return base in criterion.states and token.endswith("ed")
    return base in words_of.VERBS or token.startswith("has-") or base in criterion.words


def _is_partial(criterion: Criterion, statement: Statement) -> bool:
    """True if a statement holds for a part only, or the criterion wants it for all."""
    low = statement.text.casefold()
    shares = _PART_OF.findall(low)
    if any(part != whole for part, whole in shares) or words_of.FRACTION.search(low):
        return True
    wants_all = not words_of.ALL.isdisjoint(split_tokens(criterion.text))
    return wants_all and not shares and words_of.ALL.isdisjoint(split_tokens(low))


def _compares(criterion: Criterion, low: str) -> bool:
    """True if the numbers of a statement are compared as those of the criterion are."""
    if not criterion.numbers:
        return True
    numbers = {number for number, _ in criterion.numbers}
    others = _COUNT_THAT_IS.findall(low) + _counts_of_states(low)
    if any(count not in numbers for count in others):
        return False
    own = {match[0] for match in words_of.COMPARISONS.finditer(criterion.text)}
    comparisons = {match[0] for match in words_of.COMPARISONS.finditer(low)}
    return comparisons == own or (not comparisons and own <= words_of.INCLUSIVE)


def _counts_of_states(low: str) -> list[str]:
    """The numbers in front of states, as in "3 replicas, 2 ready"; 0 of them is none."""
    pairs = pairwise(split_tokens(low))
    counts = [number for number, state in pairs if base_of(state) in words_of.OPPOSITES]
    return [number for number in counts if is_number(number) and float(number)]


def _has_other_subject(criterion: Criterion, statement: Statement) -> bool:
    """True if a word beside the subject makes it another one, as in "payment service backup"."""
    every, words = statement.tokens, {*criterion.words}
    own = [
        position
        for position, token in enumerate(every)
        if not words.isdisjoint([base_of(token), *parts_of_word(token)])
    ]
    if not own or not criterion.subject:
        return False
    behind = [every[place + 1] for place in own if place + 1 < len(every) and place + 1 not in own]
    terms = split_tokens(criterion.text)
    others = [token for token in behind if token.casefold() not in terms]
    if any(_changes_subject(token) and not token.endswith("ing") for token in others):
        return True
    # In "Ann closed the ticket", the state comes first.
    is_first = bool(criterion.states) and base_of(every[own[0]]) not in criterion.states
    return is_first and own[0] > 0 and _changes_subject(every[own[0] - 1])


def _changes_subject(token: str) -> bool:
    """True for a word of content: no verb, adverb, number, or word that says nothing more."""
    low, base = token.casefold(), base_of(token)
    plain = STOP | words_of.VERBS | words_of.GENERAL | words_of.BESIDE | words_of.NEGATIONS
    if not low.isalpha() or low in plain or base in plain or base in words_of.OPPOSITES:
        return False
    return not low.endswith(("ly", "ed"))


def _is_reversed(criterion: Criterion, statement: Statement) -> bool:
    """True if three words or more stand the other way round, as in "cache depends on database"."""
    bases = [base_of(token) for token in statement.tokens]
    places = [bases.index(word) for word in criterion.words if word in bases]
    if len(places) < max(len(criterion.words), 3) or places != sorted(places, reverse=True):
        return False
    return not re.search(r"\b(?:by|of)\b", statement.text.casefold())


# --- JSON documents ------------------------------------------------------------------------------

#: The most lines of a document.
_MAX_LINES = 500
#: Fields that name an object.
_NAMING = frozenset(
    ["name", "id", "service", "unit", "host", "hostname", "target", "container", "pod", "resource"]
)
#: Fields that are good if they are false or zero, besides those of bad states.
_GOOD_IF_NOT = frozenset([*words_of.BAD, "dry", "warning", "timeout", "truncated", "paused"])


def lines_of(output: str) -> list[list[str]]:
    """The lines of each object in a JSON document; none for any other text, or one too deep."""
    if not output.lstrip().startswith(("{", "[")):
        return []
    try:
        document = json.loads(output)
        parts = document if isinstance(document, list) else [document]
        return [lines for part in parts if (lines := [*_lines(part, [])][:_MAX_LINES])]
    except (ValueError, RecursionError):
        return []


def _lines(value: Any, names: Sequence[str]) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _lines(item, names)
    elif isinstance(value, dict):
        own = [str(item) for key, item in value.items() if _is_naming(key, item)]
        names = [*names, *own]
        if own and len(own) == len(value):
            yield " ".join(names)
        for key, item in value.items():
            if not _is_naming(key, item):
                yield from _field(key, item, names)
    elif value is not None and str(value).strip():
        yield " ".join([*names, *str(value).split()])


def _is_naming(key: str, value: Any) -> bool:
    return key.lower() in _NAMING and isinstance(value, str | int) and not isinstance(value, bool)


def _field(key: str, value: Any, names: Sequence[str]) -> Iterator[str]:
    """The lines of a field; none if it says that there is no error or the like."""
    words = [word.lower() for word in split_word(key)]
    if isinstance(value, dict):
        yield from _lines(value, [*names, " ".join(words)])
        return
    if value in (None, "", []) or (not value and not _GOOD_IF_NOT.isdisjoint(map(base_of, words))):
        return
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict | list):
            yield from _lines(item, [*names, " ".join(words)])
        else:
            text = json.dumps(item) if isinstance(item, bool) else " ".join(str(item).split())
            yield f"{' '.join([*names, *words])}: {text}"
