"""The tokenizer: normalised words of a text, for searching."""

from __future__ import annotations

import re

_STOP = """
    a about above across after again against all almost along already also although always am among
    an and another any anybody anyone anything are around as at be because been before being below
    beneath beside besides between beyond both but by can cannot could did do does doing done during
    each either else enough even ever every everybody everyone everything except few fewer for from
    further had has have having he hence her here hers herself him himself his how however i if in
    instead into is it its itself just least less like many me might mine more most much must my
    myself neither never no nobody none nor not nothing of off often on once only onto or other
    otherwise ought our ours ourselves out over own per perhaps please quite rather same shall she
    should since so some somebody someone something soon still such than that the their theirs them
    themselves then there therefore these they this those though through throughout thus till to
    together too toward towards under unless until unto upon very via was we were what whatever when
    whenever where whereas wherever whether which whichever while who whoever whom whose why will
    with within without would yet you your yours yourself yourselves
"""
#: Words without information about the subject of a text.
STOP = frozenset(_STOP.split())
_APOSTROPHES = "'\u2019"
_WORD = re.compile(rf"[^\W_]+(?:[{_APOSTROPHES}][^\W_]+)*")
_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: A URL within a sentence.
URL = r"https?://[^\s<>\"']*[^\s<>\"'.,;:!?)\]]"
#: A path has a slash: `report.txt` alone is an ordinary word.
_PATH = r"(?<![\w/.:-])(?:(?:/[\w.-]*[\w-])+|(?:[\w-]+/)+[\w-]+\.[A-Za-z]\w{0,7}\b)"
_TOKEN = re.compile(rf"{URL}|{_PATH}|[^\W_]+(?:[{_APOSTROPHES}.\-_][^\W_]+)*")
_PLACE = re.compile(rf"{URL}|{_PATH}")
_SHORT = 3


def tokens(text: str) -> list[str]:
    """The words of *text* in order, unchanged; a URL or a path is one word."""
    return _TOKEN.findall(text)


def is_place(token: str) -> bool:
    """Report whether a token is a URL or a path."""
    return _PLACE.fullmatch(token) is not None


def words(text: str) -> set[str]:
    """The words of *text*: lower case, singular, `likeThis` as two, without stop words."""
    return set(_stems(_parts(text)))


def keywords(text: str) -> list[str]:
    """The distinct normalised words that describe the subject of *text*, in order.

    These exclude stop words, URLs and paths; also words of one or two letters, unless they are
    acronyms (`IP`) or nothing else is left.
    """
    long = [part for part in _plain_words(text) if len(part) >= _SHORT or _is_acronym(part)]
    return _stems(long) or terms(text)


def terms(text: str) -> list[str]:
    """The search terms of *text*: its keywords, including words and numbers of any length."""
    return _stems(_plain_words(text))


def stem(word: str) -> str:
    """A word in lower case and, judging by its ending, in the singular."""
    word = word.lower()
    if len(word) > 2 and word[-2] in _APOSTROPHES and word.endswith("s"):
        word = word[:-2]
    if len(word) <= 3 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes", "zes")):
        return word[:-2]
    return word[:-1]


def _plain_words(text: str) -> list[str]:
    """The words of a text without URLs and paths."""
    return [part for token in tokens(text) if not is_place(token) for part in _parts(token)]


def _parts(text: str) -> list[str]:
    return [part for word in _WORD.findall(text) for part in _split(word)]


def _split(word: str) -> list[str]:
    """The words in `likeThis`; a name of stop words only, as in `HowTo`, is one word."""
    parts = _BOUNDARY.split(word)
    is_name = len(parts) > 1 and all(part.lower() in STOP for part in parts)
    return [word] if is_name else parts


def _stems(words: list[str]) -> list[str]:
    stems = (stem(word) for word in words if word.lower() not in STOP)
    return [word for word in dict.fromkeys(stems) if word not in STOP]


def _is_acronym(word: str) -> bool:
    return len(word) > 1 and word.isupper()
