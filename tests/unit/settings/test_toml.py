"""TOML files are read within bounds of size, depth and names."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from boyd.errors import ConfigError
from boyd.settings.validation import MAX_BYTES, MAX_PARTS, read_toml


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "nest too deeply"),
        ("a = " + "{a = " * 5000 + "1" + "}" * 5000, "nest too deeply"),
        ("# first\n" + ".".join(["a"] * 100_000) + " = 1", "line 2: a name has more than 32 parts"),
        ("[" + " . ".join(["a"] * 100_000) + "]", "line 1: a name has more than 32 parts"),
        (".".join(['"a b"', "c", "'d'"] * 30_000) + " = 1", "a name has more than 32 parts"),
        ("a = " + "9" * 100_000, "not valid TOML"),
        ("#" * (MAX_BYTES + 1), f"is longer than {MAX_BYTES} bytes"),
        ("a = ", "not valid TOML"),
    ],
)
def test_a_file_that_would_take_long_is_refused_with_the_reason(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(text)

    with pytest.raises(ConfigError) as refused:
        read_toml(file)
    assert str(refused.value).startswith(f"{file}: ")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "a.b.c = 1\r\nd = 'x'\r\n",
        ".".join(["a"] * MAX_PARTS) + " = 1",
        "a = 'one. two. three'\n" * 1,
        'a = """\n' + "a sentence. " * 500 + '\n"""',
    ],
)
def test_other_files_are_read_as_they_are(tmp_path: Path, text: str) -> None:
    file = tmp_path / "agent.toml"
    file.write_bytes(text.encode())

    assert read_toml(file) == tomllib.loads(text)
