"""Criteria, read into what to look for: words, names, numbers, states, and whether they claim it.

Texts are compared by words in a basic form: one form of each letter and dash, lower case, singular.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from boyd.text.tokenizer import STOP, is_place, stem, tokens
from boyd_goals import vocabulary as words_of

#: Letters with their marks, which `\w` leaves out.
_LETTER = (
    r"(?:[^\W_\u0964\u0965]|[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    r"\u0900-\u0963\u0966-\u109f])"
)
_TOKEN = re.compile(
    rf"(?<![\w.-])-(?=\d)\d+(?:\.\d+)*|{_LETTER}+(?:['._-]{_LETTER}+)*[+#]{{0,2}}|[:=/]|[<>]=?"
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_UNIT = re.compile(
    r"(\d+(?:\.\d+)*)(x|%|[kmgt]i?b|[mµn]?s|min|h|d|m|k|w|v|hz|khz|mhz|ghz)", re.IGNORECASE
)
_JOINTS = re.compile(r"[._-]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_DASHES = re.compile(r"[\u2010-\u2013\u2212]")
_ASIDE = re.compile(r" -+ |\u2014")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_QUOTES = str.maketrans({"\u2019": "'", "\u2018": "'", "`": '"', **dict.fromkeys("“”„«»", '"')})
_PARTICIPLE = re.compile(r"[a-z]{2,}ed")
_INTERROGATIVE = re.compile(r"\W*(?:what|which|who|where|why|how)\b")
#: Words in front of "on" and "off" as states.
_SWITCHES = ("turned", "switched", "powered", "state", "status", "power", "=", ":")


class Criterion(NamedTuple):
    """A criterion as it is looked for.

    Attributes:
        words: all that can be found, in order.
        names: words that must be found as they are: identifiers, such as `web-3`.
        numbers: each number with the word that it counts; empty if there is none.
        states: words that have opposites.
        general: words that a claim may leave out.
        is_claim: it says that something is so.
        is_negated: it says that something is not so.
        text: in lower case, to see which words it uses itself.
    """

    words: tuple[str, ...]
    names: frozenset[str]
    numbers: tuple[tuple[str, str], ...]
    states: frozenset[str]
    general: frozenset[str]
    is_claim: bool
    is_negated: bool
    text: str

    @property
    def is_strict(self) -> bool:
        """True if its words must meet in one statement."""
        return self.is_claim or bool(self.names)

    @property
    def subject(self) -> frozenset[str]:
        """The words that name what the criterion is about."""
        counts = {number for number, _ in self.numbers}
        return frozenset(self.words) - self.states - self.general - counts

    @property
    def is_about(self) -> bool:
        """True if it asks for anything said about its subject, even for what it is not."""
        return not self.is_claim and bool(re.search(r"\babout\b", self.text))


# --- Text ----------------------------------------------------------------------------------------


def normalize(text: str) -> str:
    """The text with one form of each letter, dash and quotation mark."""
    text = unicodedata.normalize("NFKC", text).translate(_QUOTES)
    text = _THOUSANDS.sub("", _ASIDE.sub(", ", _DASHES.sub("-", text)))
    return text.replace("%", " percent ")


@lru_cache(maxsize=4096)
def split_tokens(text: str) -> tuple[str, ...]:
    """The words of a normal text, as they are; a number and its unit are two."""
    every: list[str] = []
    for token in _TOKEN.findall(text):
        unit = _UNIT.fullmatch(token)
        every += [unit[1], unit[2]] if unit else [token]
    return tuple(every)


@lru_cache(maxsize=8192)
def base_of(token: str) -> str:
    """A word in lower case, in the singular, and in the basic form of its state."""
    low = token.casefold().removesuffix("'s")
    low = words_of.NUMBERS.get(low) or words_of.PLURALS.get(low) or low
    singular = low if is_identifier(low) else stem(low)
    return words_of.STATES.get(low) or words_of.STATES.get(singular) or singular


def is_number(token: str) -> bool:
    """True for a number; `10.0.0.1` is none."""
    return _NUMBER.fullmatch(token) is not None


def is_identifier(token: str) -> bool:
    """True for an identifier: it has digits beside letters."""
    return any(map(str.isdigit, token)) and not is_number(token)


def split_word(token: str) -> list[str]:
    """The words in a compound, `likeThis` or like-this, as they are."""
    return [part for piece in _JOINTS.split(token) for part in _CAMEL.split(piece) if part]


@lru_cache(maxsize=8192)
def parts_of_word(token: str) -> tuple[str, ...]:
    """The words in a compound, in their basic form; one that consists of stop words is one."""
    parts = split_word(token)
    if all(part.lower() in STOP for part in parts):
        return (token.casefold(),)
    return tuple(base_of(part) for part in parts if not part.isdigit())


def has_verb(text: str) -> bool:
    """True if a text has a verb that we know, or a state, which stands for one."""
    low = (token.casefold() for token in split_tokens(text))
    return any(word in words_of.VERBS or base_of(word) in words_of.OPPOSITES for word in low)


# --- Criteria ------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def read_criterion(subject: str, text: str, frame: frozenset[str]) -> Criterion:
    """Read the *text* of a criterion, whose words begin at *subject*.

    Words of the *frame* count only if there are no others.
    """
    low = normalize(text).casefold()
    every = _criterion_words(normalize(subject))
    words = tuple(word for word in every if word not in frame) or every
    numbers = _counts(words)
    states = frozenset(word for word in words if word in words_of.OPPOSITES)
    specific = [word for word in words if word not in words_of.GENERAL and word not in states]
    is_negated = count_negations(low) % 2 == 1
    return Criterion(
        words=words,
        names=frozenset(word for word in words if is_identifier(word) or _is_compound(word)),
        numbers=numbers,
        states=states,
        general=frozenset(words) & words_of.GENERAL if specific else frozenset(),
        is_claim=bool(words) and bool(states or numbers or is_negated or _claims(low, words)),
        is_negated=is_negated,
        text=low,
    )


def _claims(text: str, words: Sequence[str]) -> bool:
    """True if a text says by a verb that something is so, or might do so."""
    # Of words that cannot be told from states, all must be found.
    if not "".join(words).isascii() or any(_PARTICIPLE.fullmatch(word) for word in words):
        return True
    if words_of.QUESTION.search(text) or _INTERROGATIVE.match(text):
        return False
    return not words_of.VERBS.isdisjoint(split_tokens(text))


def words_in(text: str) -> set[str]:
    """The words of a text as criteria have them, with the parts of its compounds."""
    return {
        form
        for token in split_tokens(normalize(text))
        for form in (base_of(token), *parts_of_word(token))
    } - STOP


def _criterion_words(text: str) -> tuple[str, ...]:
    """The distinct words of a criterion: no stop words, addresses or paths."""
    plain = " ".join(token for token in _places_apart(text) if not is_place(token))
    every: list[str] = []
    sequence = split_tokens(plain)
    for position, token in enumerate(sequence):
        low = token.casefold()
        if low in ("on", "off"):
            every += [low] if is_state(sequence, position) else []
        elif is_number(low) or is_identifier(low):
            every += [low] if low != "0" else []
        elif low not in STOP | words_of.NEGATIONS and any(map(str.isalnum, low)):
            parts = [part for part in parts_of_word(token) if part not in STOP]
            is_compound = len(parts) > 1 and _JOINTS.search(token)
            every += [low] if is_compound else parts
    return tuple(dict.fromkeys(every))


def _places_apart(text: str) -> list[str]:
    """The text between its addresses and paths, and these."""
    parts, start = [], 0
    for token in tokens(text):
        if is_place(token):
            position = text.index(token, start)
            parts += [text[start:position], token]
            start = position + len(token)
    return [*parts, text[start:]]


def is_state(sequence: Sequence[str], position: int) -> bool:
    """True unless a word such as "on" or "up" is no state there, but a preposition or particle."""
    word = sequence[position].casefold()
    before = sequence[position - 1].casefold() if position else ""
    after = sequence[position + 1].casefold() if position + 1 < len(sequence) else ""
    if word in ("on", "off"):
        return not after or before in _SWITCHES
    if word in ("up", "down"):
        return after not in ("to", "the", "on") and before not in words_of.PARTICLE_VERBS
    return True


def _is_compound(word: str) -> bool:
    return not is_number(word) and bool(_JOINTS.search(word))


def _counts(content: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Each number with the word behind it, or else the one in front of it."""
    counts = []
    for position, word in enumerate(content):
        if is_number(word):
            after = [item for item in content[position + 1 :] if not is_number(item)]
            before = [item for item in content[:position] if not is_number(item)]
            counts.append((word, (after[:1] or before[-1:] or [""])[0]))
    return tuple(counts)


def count_negations(text: str) -> int:
    """The number of negations in a text in lower case."""
    negations = words_of.NEGATIONS | {"0"}
    return sum(word in negations or word.endswith("n't") for word in split_tokens(text))
