"""Redacts secrets: known values, and text that looks like a secret.

Everything runs in linear time. Redact before truncating: nothing can find half a secret.
"""

from __future__ import annotations

import base64
import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from html import escape
from typing import Any
from urllib.parse import quote, quote_plus

#: The replacement of a secret.
MARK = "[redacted]"
#: Minimum lengths of registered secrets, and of secrets from the environment.
MIN_LENGTH = 6
MIN_ENVIRONMENT = 8
#: Minimum length of a value of a reference of which a half is found, too.
MIN_CUT = 16

Span = tuple[int, int]

#: A name of a secret; the lookahead on its first letter saves time.
_NAME = (
    r"(?=[acepstACEPST])(?i:pass(?:word|wd|phrase)|pwd|secret(?:(?:access)?key)?|token|credential|"
    r"(?:api|access|private|signing|encryption)[_-]?key)"
)
#: The rest of such a name; names of properties of a secret, and `max_tokens`, do not count.
_NAME_END = (
    r"(?![_-](?i:count|env|expir\w{1,8}|file|id|length|limit|name|path|policy|ref|type|url)\b)"
    r"(?:[_-][\w-]{0,32}+)?+"
)
#: Words in place of a secret.
_WORDS = (
    r"(?!(?:true|false|null|none|nil|undefined|string|required|optional|missing|invalid|expired|"
    r"incorrect|rejected|unknown|empty|unset|hidden|masked)\b|\[redacted\]|secret://)"
)
_TOKEN = r"(?<![A-Za-z0-9_-])"  # noqa: S105 - the start of a token
_IS = r"[ \t]{0,4}(?:=>|:=|[:=])[ \t]{0,4}"
_BEGIN = r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
_END = r"-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
_BLANKS = r"(?:\s|\\[rn])*+"
_LINE = r"(?:(?:Proc-Type:|DEK-Info:)[ \t]?[^\s\\]++|[A-Za-z0-9+/=]{16,}+)"

_PRIVATE_KEY = (
    rf"(?P<secret>{_BEGIN}(?:{_BLANKS}{_LINE})*+"
    rf"(?:{_BLANKS}[A-Za-z0-9+/=]{{0,15}}+{_BLANKS}{_END})?)"
)
#: Any credentials after the name of the header; elsewhere, only those that are not a word.
_AUTHORIZATION = (
    rf"(?i:authorization)\\{{0,3}}[\"']?{_IS}\\{{0,3}}[\"']?"
    r"(?:(?i:apikey|basic|bearer|digest|negotiate|token)[ \t]{1,4})?+"
    r"(?P<secret>(?!\[redacted\])[^\s\"',\\]{6,}+)"
)
_CREDENTIALS = (
    r"\b(?i:basic|bearer)[ \t]{1,4}(?=[A-Za-z+/._~-]*+[0-9=]|[a-z+/._~-]++[A-Z])"
    r"(?P<secret>[A-Za-z0-9+/._~=-]{12,}+)"
)
_AWS_KEY = r"(?<![A-Za-z0-9])(?P<secret>(?:AKIA|ASIA)[A-Z0-9]{16})(?![A-Za-z0-9])"
#: Keys and tokens with a known prefix: GitHub, GitLab, Slack, models, Google, JSON web tokens.
_PREFIXED = (
    rf"{_TOKEN}(?P<secret>gh[opsur]_[A-Za-z0-9]{{20,}}+|github_pat_[A-Za-z0-9_]{{20,}}+"
    r"|glpat-[A-Za-z0-9_-]{16,}+|xox[a-z]-[A-Za-z0-9-]{10,}+"
    r"|sk-(?=[A-Za-z_-]*+[0-9])[A-Za-z0-9_-]{16,}+|AIza[A-Za-z0-9_-]{35}"
    r"|eyJ[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+){2,4})"
)
_BOYD_KEY = r"boyd_[a-z0-9]{12}_(?P<secret>[A-Za-z0-9_-]{43})"
_URL = r"(?<=://)[^\s:/@]{0,256}+:(?P<secret>(?!\[redacted\]@)[^\s/?#]{1,256})@"
#: ="a b c", ": "a b c", and the same inside of JSON
_QUOTED = tuple(
    rf"\\{{0,3}}[\"']?{_IS}\\{{0,3}}{mark}(?i:{_WORDS})"
    rf"(?P<secret>(?=[^{mark}]{{4}})[^\s{mark}\\]++(?:[ \\][^\s{mark}\\]++){{0,6}})"
    rf"(?=\\{{0,3}}{mark})"
    for mark in ('"', "'")
)
#: =abc
_CLOSE = rf"=(?i:{_WORDS})(?P<secret>[^\s\"'&;,\\]{{4,}}+)"
#: : abc, and = abc; a call such as f(x) is not a secret
_APART = (
    rf"\\{{0,3}}[\"']?{_IS}(?i:{_WORDS})(?![\w.]{{1,64}}+[(\[])"
    r"(?P<secret>[^\s\"'\\,;&()\[\]{}<>|`]{6,}+)"
)
#: One pattern for each kind of secret, in the group `secret`; none spans more than _REACH words.
_PATTERNS = tuple(
    map(
        re.compile,
        (_PRIVATE_KEY, _AUTHORIZATION, _CREDENTIALS, _AWS_KEY, _PREFIXED, _BOYD_KEY, _URL),
    )
)
_NAMES = re.compile(_NAME)
#: A secret right behind its name.
_ASSIGNED = re.compile(
    _NAME_END
    + "(?:"
    + "|".join(
        form.replace("?P<secret>", f"?P<s{n}>") for n, form in enumerate((*_QUOTED, _CLOSE, _APART))
    )
    + ")"
)
#: Words that a pattern may span; a PEM key may span more, but is recognised by its beginning.
_REACH = 14
_WORD = re.compile(r"\s(?=\S)")
#: Characters at the end of a key that are searched for the name of a secret.
_LONGEST_NAME = 100
#: A further place to cut a text without blanks, as no pattern matches across two such characters.
_BETWEEN = re.compile(r"(?<=[^\x00-\x7f])(?=[^\x00-\x7f])")
#: The beginnings of all patterns, within one word.
_OPENING = re.compile(
    r"-----BEGIN|(?i:authorization|basic|bearer)|AKIA|ASIA|gh[opsur]_|github_pat_|glpat-|xox[a-z]-"
    rf"|sk-|AIza|eyJ|boyd_|://|{_NAME}"
)
#: A reference names a secret, and is none; its field may be called like one.
_REFERENCE = re.compile(r"secret://[\w.~+@:/-]{1,500}(?:#[\w.-]{1,200})?", re.ASCII)
_SECRET_NAME = re.compile(rf".*{_NAME}{_NAME_END}")
_ENVIRONMENT = re.compile(r"(?i).*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)")
#: A text is searched in slices, as a search holds the interpreter until it ends. The overlap shows
#: matches that begin in one slice and end in the next.
_SLICE, _OVERLAP = 131_072, 32_768


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Report whether the name of a variable of the environment suggests a secret."""
    return _ENVIRONMENT.fullmatch(name) is not None


class Redactor:
    """Replaces secrets by a mark.

    Known *values* of at least six characters are found verbatim, in JSON, in URLs and in base64.
    """

    def __init__(
        self, values: Iterable[str] = (), referenced: Iterable[str] = (), patterns: bool = True
    ) -> None:
        """Without *patterns* only values are found, those of *referenced* in part, too."""
        self._patterns = patterns
        forms = [
            {form for value in _long(group) for form in _forms(value)}
            for group in (values, referenced)
        ]
        self._forms = sorted(forms[0] | forms[1])
        self._halves = [
            (form, form[: len(form) // 2], form[len(form) // 2 :])
            for form in sorted(forms[1])
            if len(form) >= MIN_CUT
        ]
        #: Forms within which a stream may be cut.
        tails = [tail for _, _, tail in self._halves]
        self._apart = [
            form for form in (*self._forms, *tails) if not form.isascii() or len(form.split()) > 1
        ]

    def redact(self, text: str) -> str:
        """*text* with secrets replaced."""
        parts: list[str] = []
        end = 0
        for start, stop in _merge_spans(secret for _, secret in self.secret_spans(text)):
            parts += [text[end:start], MARK]
            end = stop
        return "".join([*parts, text[end:]])

    def redact_json(self, value: Any) -> Any:
        """A JSON value with secrets replaced in strings, in keys, and under names of secrets."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, list):
            return [self.redact_json(item) for item in value]
        if isinstance(value, dict):
            return {self.redact(key): self._field(key, item) for key, item in value.items()}
        return value

    def is_safe(self, value: Any) -> bool:
        """Check quickly that `redact_json` leaves *value* as it is; False if it may change it."""
        text = "\n".join(_strings(value))
        return not any(matches(_NAMES, text)) and not any(self.secret_spans(text))

    def secret_spans(self, text: str) -> Iterator[tuple[Span, Span]]:
        """The spans of all secrets: the whole match, and the secret in it."""
        for form in self._forms:
            start = text.find(form)
            while start >= 0:
                span = (start, start + len(form))
                yield span, span
                start = text.find(form, start + 1)
        for halves in self._halves:
            yield from ((span, span) for span in _cut_spans(*halves, text))
        if self._patterns:
            for pattern in _PATTERNS:
                for match in matches(pattern, text):
                    yield match.span(), match.span("secret")
            yield from _assignments(text)

    def opens(self, text: str) -> int:
        """The index in *text* from which a secret may begin that is not complete yet."""
        words = [match.end() for match in _WORD.finditer(text)]
        opening = _OPENING.search(text, words[-_REACH - 1] if len(words) > _REACH else 0)
        starts = [opening.start()] if opening else []
        starts += [_partial(form, text) for form in self._apart]
        return min(starts, default=len(text))

    def _field(self, key: str, value: Any) -> Any:
        if not (self._patterns and isinstance(value, str) and value):
            return self.redact_json(value)
        # A reference to a secret is none.
        is_secret = not value.startswith("secret://") and _SECRET_NAME.fullmatch(
            key[-_LONGEST_NAME:]
        )
        return MARK if is_secret else self.redact_json(value)


class RedactedStream:
    """Redacts a text that arrives in pieces, with the same result as for the whole.

    It holds back the last word and any possible beginning of a secret, and never cuts within a
    match.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._parts: list[str] = []
        self._length = 0
        self._due = 0

    def feed(self, chunk: str) -> str:
        """Add *chunk* and return the text that can be shown."""
        self._parts.append(chunk)
        self._length += len(chunk)
        if self._length < self._due:
            return ""
        text = "".join(self._parts)
        cut = self._cut(text)
        self._keep(text[cut:])
        return self._redactor.redact(text[:cut])

    def flush(self) -> str:
        """Return the rest and reset the stream."""
        text = "".join(self._parts)
        self._keep("")
        self._due = 0
        return self._redactor.redact(text)

    def _cut(self, text: str) -> int:
        """The length of *text* that no later chunk can change."""
        opens = self._redactor.opens(text)
        cuts = {match.end() for cut in (_WORD, _BETWEEN) for match in cut.finditer(text)}
        places = sorted(place for place in cuts if place <= opens)
        spans = _merge_spans(span for span, _ in self._redactor.secret_spans(text))
        while places and spans:
            start, end = spans.pop()
            # One word may contain the end of a secret and the beginning of another.
            while places and start < places[-1] < end:
                places.pop()
        return places[-1] if places else 0

    def _keep(self, text: str) -> None:
        """Hold *text* back; a long one is searched again only after growing by a quarter."""
        self._parts = [text] if text else []
        self._length = len(text)
        self._due = self._length + self._length // 4 if self._length > 1024 else 0


_PASSWORD = re.compile(r"(://[^\s:/@]*):[^\s@/]+@")
_QUERY = re.compile(r"([?&]\w*password=)[^\s&\"']+")
_registered: set[str] = set()
#: Values of references and their parts, the latest ones last; replaced as a whole.
referenced: tuple[str, ...] = ()
_lock = threading.Lock()
#: The most values of references that are found: rotation brings new ones.
_MAX_REFERENCED = 500


def clean(text: str) -> str:
    """*text* without secrets, for logs and errors."""
    return redactor().redact(mask_passwords(text))


def mask_passwords(text: str) -> str:
    """*text* without passwords in URLs."""
    return _QUERY.sub(r"\1***", _PASSWORD.sub(r"\1:***@", text))


def register(*values: str) -> None:
    """Register secrets for `redactor` in this process."""
    _registered.update(values)


def register_referenced(*values: str) -> None:
    """Register what references stand for, each value with its lines and with its texts in JSON."""
    global referenced
    parts = dict.fromkeys(part for value in values for part in (value, *_parts_of(value)))
    with _lock:
        if fresh := [part for part in parts if part not in referenced]:
            referenced = (*referenced, *fresh)[-_MAX_REFERENCED:]


def _parts_of(value: str) -> Iterator[str]:
    """The parts of a secret that may appear alone."""
    if value.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            yield from _strings([*json.loads(value).values()])
    lines = value.split("\n")
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= MIN_CUT and not line.startswith("--"))


def redactor() -> Redactor:
    """The redactor of this process: registered values, its environment, and patterns."""
    return _redactor(frozenset(environment_secrets() | _registered), referenced)


def mask_json(text: str) -> str:
    """The JSON *text* with what references stand for replaced in its strings."""
    values = _redactor(frozenset(), referenced, patterns=False)
    if not any(values.secret_spans(text)):
        return text
    # A number may look like a secret, and stays a number.
    return json.dumps(values.redact_json(json.loads(text)), ensure_ascii=False)


@lru_cache(maxsize=4)
def _redactor(
    values: frozenset[str], referenced: tuple[str, ...] = (), patterns: bool = True
) -> Redactor:
    return Redactor(values, referenced, patterns)


def environment_secrets(environ: Mapping[str, str] | None = None) -> set[str]:
    """The values of environment variables with names of secrets."""
    variables = os.environ if environ is None else environ
    values = {variables[name].strip() for name in variables if is_secret_name(name)}
    return {value for value in values if len(value) >= MIN_ENVIRONMENT}


def _strings(value: Any) -> Iterator[str]:
    """All strings and keys in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        yield from value
        yield from _strings(list(value.values()))


def _partial(form: str, text: str) -> int:
    """The index at which *text* ends with the beginning of *form*, or its length."""
    start = text.find(form[0], max(0, len(text) - len(form) + 1))
    while start >= 0:
        if form.startswith(text[start:]):
            return start
        start = text.find(form[0], start + 1)
    return len(text)


def _assignments(text: str) -> Iterator[tuple[Span, Span]]:
    """The spans of values assigned to names of secrets."""
    end = 0
    for name in matches(_NAMES, text):
        if name.start() < end:
            continue
        if reference := _REFERENCE.match(text, name.start()):
            end = reference.end()
            continue
        match = _ASSIGNED.match(text, name.end())
        if match and match.lastgroup:
            end = match.end()
            yield (name.start(), end), match.span(match.lastgroup)


def matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Like `pattern.finditer(text)`, in steps of a few milliseconds."""
    at = 0
    while at < len(text):
        border = at + _SLICE
        candidate = pattern.search(text, at, border + _OVERLAP)
        if candidate is None or candidate.start() >= border:
            at = border
            continue
        # The slice may have cut the match off, or hidden what rules it out.
        match = pattern.match(text, candidate.start())
        if match:
            yield match
        at = max(match.end() if match else 0, candidate.start() + 1)


def _merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, with overlapping ones merged."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _long(values: Iterable[str]) -> set[str]:
    """The values that are long enough to be found."""
    stripped = {value.strip() for value in values}
    return {value for value in stripped if len(value) >= MIN_LENGTH and value not in MARK}


def _cut_spans(form: str, head: str, tail: str, text: str) -> Iterator[Span]:
    """The spans of at least the first or the last half of *form*, as far as it goes on there."""
    start = text.find(head)
    while start >= 0:
        shared = _prefix_length(form, text[start : start + len(form)])
        yield start, start + shared
        start = text.find(head, start + 1)
    start = text.find(tail)
    while start >= 0:
        end = start + len(tail)
        before = text[max(0, end - len(form)) : end]
        yield end - _prefix_length(form[::-1], before[::-1]), end
        start = text.find(tail, start + 1)


def _prefix_length(text: str, other: str) -> int:
    """The number of characters with which both begin."""
    pairs = enumerate(zip(text, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(text), len(other)))


def _forms(value: str) -> set[str]:
    """The encodings of a secret."""
    escaped = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    raw = value.encode("utf-8", "surrogatepass")
    python = {repr(value)[1:-1], repr(raw)[2:-1]}
    # JSON within JSON, or in Python's notation, as dictionaries in a log have it.
    twice = {json.dumps(form)[1:-1] for form in escaped | python}
    quoted = {quote(raw), quote(raw, safe=""), quote_plus(raw), escape(value)}
    return {value, *escaped, *python, *twice, *quoted, raw.hex(), *_base64_forms(raw)}


def _base64_forms(raw: bytes) -> Iterator[str]:
    """The base64 encodings of *raw* at any position in a longer text."""
    for before in range(3):
        coded = base64.b64encode(bytes(before) + raw).rstrip(b"=")
        whole = (before + len(raw)) * 8 // 6
        inner = coded[-(-before * 8 // 6) : whole].decode()
        if len(inner) >= MIN_LENGTH:
            yield inner
            yield inner.translate(str.maketrans("+/", "-_"))
