"""Secrets do not get past the redactor, whole or in pieces."""

from __future__ import annotations

import base64
import json
from html import escape
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boyd.text import redaction
from boyd.text.redaction import (
    _OVERLAP,
    _SLICE,
    MARK,
    RedactedStream,
    Redactor,
    environment_secrets,
    mask_json,
    matches,
    redactor,
    register_referenced,
)
from costs import MOST, growth

SECRET = 'pä"ss/w+rd 1&2'
PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\n"
    + ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ" + "\n") * 5
    + "abc=\n-----END RSA PRIVATE KEY-----"
)
BOYD = "boyd_abcdefghij12_" + "s3" * 21 + "x"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.c2lnbmF0dXJl"

#: A text, and what must not be left of it.
LEAKS = [
    ("Authorization: Bearer abcdef.ghi", "abcdef.ghi"),
    ("authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ('{"Authorization": "token abcdefgh"}', "abcdefgh"),
    ("curl -H 'X: Bearer abc123def456ghi'", "abc123def456ghi"),
    ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI/K7MDENG"),
    ('"SecretAccessKey": "wJalrXUtnFEMI/K7MDENG"', "wJalrXUtnFEMI/K7MDENG"),
    ("ghp_" + "aB3" * 12, "aB3aB3"),
    ("github_pat_" + "aB3_" * 12, "aB3_aB3"),
    ("xoxb-123456789012-abcdef", "123456789012"),
    ("sk-proj-abcdefghij1234567890", "abcdefghij1234567890"),
    (f"jwt {JWT} end", "eyJzdWIi"),
    ("password=hunter2 next", "hunter2"),
    ("DB_PASSWORD_PROD=p@ss(w)0rd!", "p@ss(w)0rd!"),
    ("?token=abcd1234&x=1", "abcd1234"),
    ("secret: hunter22", "hunter22"),
    ("api_key: abcdef123", "abcdef123"),
    ("api-key = 'ab cd ef'", "ab cd ef"),
    ('{"password":"correct horse battery staple"}', "correct horse"),
    (json.dumps(json.dumps({"password": "hunter2"})), "hunter2"),
    ("password='say-\"x\"-now'", "say-"),
    ("redis://:hunter2@localhost/0", "hunter2"),
    ("postgres://me:p@ss@db.example/x", "p@ss"),
    (f"key {BOYD}.", "s3s3"),
    (f"before {PEM} after", "MIIE"),
    (json.dumps(PEM), "MIIE"),
    (PEM[: PEM.index("abc=")], "MIIE"),
]

#: What a person or a model must still be able to read.
PLAIN = [
    "Basic authentication is enabled, bearer tokens are not.",
    "max_tokens: 4096000, total_tokens=123456",
    "token_count=500000 token_type: bearer-like api_key_env: MY_KEY_NAME",
    "password: incorrect",
    "token = next(tokens)\npassword = getpass.getpass()",
    "http://localhost:8080/path?mail=me@example.org",
    "task-abcdefghij1234567890",
    "The secret is to keep going. What is a password? The password was changed.",
    'Look for "-----BEGIN CERTIFICATE-----" in it.',
    "sk-learn and scikit",
]


@pytest.mark.parametrize(("text", "leak"), LEAKS)
def test_secrets_are_redacted(text: str, leak: str) -> None:
    redacted = Redactor().redact(text)
    assert leak not in redacted
    assert MARK in redacted
    assert list(Redactor().secret_spans(text))
    assert not list(Redactor().secret_spans(redacted))


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_is_not_redacted(text: str) -> None:
    assert Redactor().redact(text) == text


def test_text_around_a_secret_is_kept() -> None:
    assert Redactor().redact("a password=hunter2 b") == f"a password={MARK} b"
    assert Redactor().redact("http://me:pw@host/x") == f"http://me:{MARK}@host/x"
    assert Redactor().redact(f"x {BOYD} y") == f"x boyd_abcdefghij12_{MARK} y"
    assert Redactor().redact(f"x {PEM} y") == f"x {MARK} y"


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        quote(SECRET),
        quote(SECRET, safe=""),
        *(base64.b64encode(b"x" * n + SECRET.encode() + b"yy").decode() for n in range(4)),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
    ],
)
def test_a_known_value_is_found_however_it_is_written(form: str) -> None:
    redacted = Redactor([f" {SECRET}\n"]).redact(f"it is {form} here")
    assert MARK in redacted
    assert len(redacted) < len(f"it is {MARK} here") + 12


def test_short_values_are_passed_over_and_overlapping_ones_are_one() -> None:
    assert Redactor(["abc", "", "  "]).redact("abc def") == "abc def"
    assert Redactor(["abcdef", "defghi"]).redact("abcdefghi") == MARK
    assert Redactor(["ababab"]).redact("abababab!") == f"{MARK}!"


def test_json_is_redacted_in_values_keys_and_by_names() -> None:
    redactor = Redactor(["hunter2222"])
    value = {"a": ["x hunter2222", 1, None], "hunter2222": True, "apiKey": "short", "tokens": "12"}
    assert redactor.redact_json(value) == {
        "a": [f"x {MARK}", 1, None],
        MARK: True,
        "apiKey": MARK,
        "tokens": "12",
    }


def test_secrets_of_the_environment_are_recognised_by_variable_name() -> None:
    environ = {"OPENAI_API_KEY": "longenough", "X_TOKEN": "short", "PATH": "/usr/bin:/bin"}
    environ |= {"db_password": "p" * 8, "THE_SECRET": "s" * 9, "KEY_FILE": "/etc/some/key"}
    assert environment_secrets(environ) == {"longenough", "p" * 8, "s" * 9}
    assert isinstance(environment_secrets(), set)


PIECES = st.sampled_from(
    [
        *(text for text, _ in LEAKS),
        *PLAIN,
        *("multi word secret value", "multi word", "secret value", "hunter2222", "password", "="),
        *(":", '"', "'", " ", "\n", "  ", "Bearer", "Authorization:", "-----BEGIN", "RSA"),
        *("密码一二三四五六", "密码", "一二三", "磁盘", "https://"),
        *("PRIVATE KEY-----", "-----END", "A" * 20, "abc=", "\\n", "://", "@", "x", "token"),
    ]
) | st.text(max_size=5)
TEXTS = st.lists(PIECES, max_size=40).map("".join) | st.lists(PIECES, max_size=40).map(" ".join)


@pytest.mark.long
@settings(max_examples=500, deadline=None)
@given(TEXTS, st.randoms(use_true_random=False))
def test_a_text_in_pieces_is_redacted_as_a_whole(text: str, random: object) -> None:
    redactor = Redactor(["multi word secret value", "hunter2222", "密码一二三四五六"])
    stream, parts, at = RedactedStream(redactor), [], 0
    while at < len(text):
        size = random.choice([1, 2, 3, 7, 40, 400])  # type: ignore[attr-defined]
        parts.append(stream.feed(text[at : at + size]))
        at += size
    assert "".join([*parts, stream.flush()]) == redactor.redact(text)


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_a_known_value_is_never_left(text: str) -> None:
    redactor = Redactor(["hunter2222"])
    assert "hunter2222" not in redactor.redact(text)
    assert list(redactor.secret_spans(text)) or redactor.redact(text) == text


def test_a_stream_shows_each_word_when_the_next_one_begins() -> None:
    stream = RedactedStream(Redactor())
    pieces = [stream.feed(piece) for piece in ("It ", "was th", "e disk", " of web-1.")]
    assert pieces == ["", "It was ", "the ", "disk of "]
    assert stream.flush() == "web-1."
    assert stream.flush() == ""


def test_a_stream_without_blanks_is_shown_too() -> None:
    stream = RedactedStream(Redactor(["密码一二三四五六"]))
    assert stream.feed("磁盘已满") == "磁盘已"
    assert stream.feed("密码一二") == "满"
    assert stream.feed("三四五六。") == f"{MARK}"
    assert stream.flush() == "。"


def test_a_stream_holds_back_what_may_be_the_beginning_of_a_secret() -> None:
    stream = RedactedStream(Redactor())
    assert stream.feed("The disk is full. The password is set to: ") == "The disk is full. The "
    assert stream.feed("it. " * 20).startswith("password is set to: it. ")


HOSTILE = [
    *("a", "token:", "token=", "token_", "token: x.", "a://b:", "://x:", "-sk-", "eyJaaaaaaaa."),
    *("Bearer ", "authorization: ", 'password="a ', "-----BEGIN PRIVATE KEY-----", "\\\\"),
    *("-----BEGIN A ", "A" * 30 + "\n", "-----BEGIN PRIVATE KEY-----\n" + "A" * 20 + "\n", "xoxb-"),
    *("hunter2222", "aaaaaaaa", " ", "-----END ", "token:'", "://"),
]


@pytest.mark.long
@pytest.mark.parametrize("size", [100_000, 1_000_000])
@pytest.mark.parametrize("seed", HOSTILE)
def test_a_megabyte_of_anything_takes_time_in_proportion(seed: str, size: int) -> None:
    redactor = Redactor(["hunter2222", "aaaaaaaa"])

    def text(length: int) -> str:
        return seed * (length // len(seed))

    def redact(value: str) -> None:
        redactor.redact(value)
        stream = RedactedStream(redactor)
        for at in range(0, len(value), 1000):
            stream.feed(value[at : at + 1000])
        stream.flush()

    assert growth(redact, text, size) < MOST


@pytest.mark.parametrize("border", [0, 1, 5, 14, 30, 40])
def test_a_secret_across_two_slices_is_found_as_in_a_short_text(border: int) -> None:
    secret = "password=hunter2abcdef"
    before = "x" * (_SLICE - border - 1) + " "

    assert Redactor().redact(f"{before}{secret} {before}") == (
        f"{before}password=[redacted] {before}"
    )


def test_a_long_secret_is_found_whole() -> None:
    text = "password=" + "a1" * _SLICE

    assert Redactor().redact(text) == "password=[redacted]"


def test_no_step_of_redaction_looks_at_more_than_a_slice() -> None:
    """A search of the whole text would hold the interpreter for a second."""
    lengths: list[int] = []

    class Watched:
        def search(self, text: str, begin: int, end: int) -> None:
            lengths.append(end - begin)

    assert list(matches(Watched(), "a" * 8_000_000)) == []  # type: ignore[arg-type]
    assert max(lengths) == _SLICE + _OVERLAP
    assert len(lengths) == -(-8_000_000 // _SLICE)


@pytest.mark.parametrize(
    ("value", "safe"),
    [
        ({"load": [1.5, None, True], "text": "all is well"}, True),
        ({"password": "x"}, False),
        ({"a": ["line\nghp_abcdefghijklmnopqrstuvwxyz0123"]}, False),
        ({"hunter22hunter": 1}, False),
    ],
)
def test_a_value_is_safe_only_if_redacting_leaves_it_as_it_is(value: Any, safe: bool) -> None:
    redactor = Redactor(["hunter22hunter"])

    assert redactor.is_safe(value) is safe
    assert (redactor.redact_json(value) == value) is safe


REFERENCED = "pä\"ss/w'rd\\of+the horse & more"


@pytest.mark.parametrize("size", [15, 17, 20, 25])
def test_a_half_of_what_a_reference_stands_for_is_found_and_what_follows(size: int) -> None:
    redactor = Redactor([], [REFERENCED])

    assert redactor.redact(f"it is {REFERENCED[:size]}… ok") == f"it is {MARK}… ok"
    assert redactor.redact(f"it is …{REFERENCED[-size - 1 :]} ok") == f"it is …{MARK} ok"


def test_less_than_a_half_is_left() -> None:
    assert Redactor([], [REFERENCED]).redact(REFERENCED[:12]) == REFERENCED[:12]


@pytest.mark.parametrize("value", [REFERENCED, REFERENCED.encode(), {"a": REFERENCED}])
def test_python_shows_no_secret_either(value: Any) -> None:
    redacted = Redactor([], [REFERENCED]).redact(repr(value))

    assert MARK in redacted
    assert "horse" not in redacted


def test_other_forms_of_a_value_are_found() -> None:
    for text in (REFERENCED.encode().hex(), escape(REFERENCED)):
        assert Redactor([REFERENCED]).redact(f"x {text} y") == f"x {MARK} y"


@given(st.lists(st.integers(1, 12), max_size=20), st.integers(0, 30), st.integers(0, 30))
def test_a_stream_hides_halves_as_the_whole_text_does(cuts: list[int], a: int, b: int) -> None:
    redactor = Redactor([], [REFERENCED])
    text = f"one {REFERENCED[:a]} two {REFERENCED[b:]} three {REFERENCED} end"
    stream, at = RedactedStream(redactor), 0
    parts: list[str] = []
    for size in [*cuts, len(text)]:
        parts.append(stream.feed(text[at : at + size]))
        at += size

    assert "".join([*parts, stream.flush()]) == redactor.redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "secret://vault/db/prod#password could not be read: it is sealed",
        "password=secret://vault/db/prod#password",
        'token: "secret://aws/arn:aws:secretsmanager:eu-central-1:1:secret:db#api_key"',
    ],
)
def test_a_reference_is_no_secret(text: str) -> None:
    fields = {"password": "secret://vault/db"}

    assert Redactor().redact(text) == text
    assert Redactor().redact_json(fields) == fields


@pytest.mark.parametrize(
    "text", ["secret://a/b?password=hunter2", "secret://me:hunter2@host/", "secret: hunter22"]
)
def test_nothing_hides_behind_a_reference(text: str) -> None:
    assert "hunter2" not in Redactor().redact(text)


@pytest.fixture
def nothing_referenced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "referenced", ())


@pytest.mark.usefixtures("nothing_referenced")
def test_json_is_masked_in_its_strings_and_stays_json() -> None:
    assert mask_json('{"a": "correct-horse"}') == '{"a": "correct-horse"}'
    register_referenced("correct-horse", "12345678", '{"user": "the-one-user"}')
    text = json.dumps({"correct-horse": ["x correct-horse", 12345678, "password=hunter22"]})

    assert json.loads(mask_json(text)) == {MARK: [f"x {MARK}", 12345678, "password=hunter22"]}
    assert json.loads(mask_json('["the-one-user"]')) == [MARK]


@pytest.mark.usefixtures("nothing_referenced")
def test_each_line_of_a_key_is_found_but_not_its_frame() -> None:
    register_referenced("-----BEGIN X-----\nMIIEvQIBADANBgkqhkiG\nabc\n-----END X-----")

    assert redactor().redact("line MIIEvQIBADANBgkqhkiG of it") == f"line {MARK} of it"
    assert redactor().redact("-----BEGIN X-----") == "-----BEGIN X-----"


@pytest.mark.usefixtures("nothing_referenced")
def test_rotation_does_not_fill_the_memory() -> None:
    for number in range(1200):
        register_referenced(f"rotated-value-{number}")

    assert len(redaction.referenced) == 500
    assert redactor().redact("rotated-value-1199") == MARK
