"""References to secrets: how they are written, read, kept for some seconds, and never quoted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr

from boyd import ConfigError, Plugin, PluginError, Secret
from boyd.errors import SecretUnavailable
from boyd.settings.process_settings import load_settings
from boyd.settings.secret_references import (
    SecretReader,
    SecretReference,
    SecretSettings,
    fill_secrets,
    places_in,
    read_secret,
    reveal,
    use_reader,
)
from boyd.text.redaction import clean
from secret_kit import Keeper, KeeperReader, keep_secrets

VALUE = "correct-horse-battery"


@pytest.fixture(autouse=True)
def own_reader() -> Iterator[None]:
    yield
    use_reader(SecretReader())


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("secret://vault/db/prod#password", ("vault", "db/prod", "password")),
        ("secret://files/token", ("files", "token", None)),
        (
            "secret://aws/arn:aws:secretsmanager:eu-central-1:1:secret:db-AbCdEf#user.name",
            ("aws", "arn:aws:secretsmanager:eu-central-1:1:secret:db-AbCdEf", "user.name"),
        ),
    ],
)
def test_a_reference_names_provider_path_and_field(text: str, parts: tuple[str, ...]) -> None:
    reference = SecretReference.parse(text)

    assert (reference.provider, reference.path, reference.field) == parts


@pytest.mark.parametrize(
    "text",
    [
        *("secret://", "secret://vault", "secret://vault/", "secret:///db", "secret://Vault/db"),
        *("secret://vault/../db", "secret://vault/a/./b", "secret://vault/a//b", "secret://v/a b"),
        *("secret://vault/a?version=1", "secret://vault/a#", "secret://vault/a#b#c", "file://a/b"),
        *(
            "secret://vault/a\n",
            "secret://vault/ä",
            f"secret://vault/{'a' * 500}",
            "secret://v/%2e",
        ),
    ],
)
def test_a_text_of_another_form_is_no_reference(text: str) -> None:
    with pytest.raises(ValueError, match="no reference to a secret"):
        SecretReference.parse(text)


def test_a_field_is_one_of_the_secret_or_of_its_json() -> None:
    secrets = {"map": {"a": VALUE, "n": 12345678}, "json": f'{{"a": "{VALUE}"}}', "text": VALUE}
    with keep_secrets(secrets):
        assert read_secret("secret://keeper/map#a") == VALUE
        assert read_secret("secret://keeper/map#n") == "12345678"
        assert read_secret("secret://keeper/json#a") == VALUE
        for text in ("map", "map#b", "json#b", "text#a"):
            with pytest.raises(SecretUnavailable) as refusal:
                read_secret(f"secret://keeper/{text}")
            assert VALUE not in str(refusal.value)


def test_a_secret_too_short_to_be_masked_is_refused() -> None:
    with keep_secrets({"pin": "1234", "empty": "", "long": "x" * 70_000}):
        for path in ("pin", "empty", "long"):
            with pytest.raises(SecretUnavailable, match="can be masked"):
                read_secret(f"secret://keeper/{path}")


def test_a_value_is_kept_for_some_seconds_and_then_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keeper = Keeper({"db": VALUE})
    reader = KeeperReader(keeper, cache=60)
    reader.read("secret://keeper/db")
    reader.read("secret://keeper/db")
    assert keeper.reads == 1

    keeper.secrets["db"] = "rotated-value"
    later = time.monotonic() + 61
    clock = SimpleNamespace(monotonic=lambda: later)
    monkeypatch.setattr("boyd.settings.secret_references.time", clock)
    assert reader.read("secret://keeper/db") == "rotated-value"


def test_without_a_cache_each_use_reads() -> None:
    keeper = Keeper({"db": VALUE})
    reader = KeeperReader(keeper)
    reader.read("secret://keeper/db")
    keeper.secrets["db"] = "rotated-value"

    assert reader.read("secret://keeper/db") == "rotated-value"


def test_the_cache_has_a_limit() -> None:
    keeper = Keeper({str(n): VALUE for n in range(50)})
    reader = KeeperReader(keeper, cache=60, max_cached=10)
    for n in range(50):
        reader.read(f"secret://keeper/{n}")
    assert len(reader._cache) == 10
    reader.read("secret://keeper/49")

    assert keeper.reads == 50


def test_a_failure_is_not_kept_nor_an_old_value_used() -> None:
    keeper = Keeper({"db": VALUE})
    reader = KeeperReader(keeper)
    reader.read("secret://keeper/db")
    keeper.secrets["db"] = SecretUnavailable("the server is sealed")

    with pytest.raises(SecretUnavailable, match="secret://keeper/db could not be read: the server"):
        reader.read("secret://keeper/db")


def test_an_error_of_a_provider_is_not_quoted() -> None:
    with keep_secrets({"db": RuntimeError(f"unexpected {VALUE}")}):
        with pytest.raises(SecretUnavailable, match="could not be read: RuntimeError") as refusal:
            read_secret("secret://keeper/db")
        assert VALUE not in str(refusal.value)
        assert refusal.value.__cause__ is None
        assert refusal.value.__suppress_context__


@pytest.mark.parametrize(
    ("providers", "complaint"),
    [
        ({}, r"no provider 'vault': add the table \[secrets.providers.vault\]"),
        ({"valt": {}}, "did you mean 'valt'"),
        ({"vault": {"use": "valt"}}, "no provider of the kind 'valt' is installed; did you mean"),
        ({"vault": {"use": "files"}}, "secrets.providers.vault: folder"),
        ({"vault": {"use": "files", "folder": "/x", "fold": 1}}, "fold: is not known"),
    ],
)
def test_a_provider_that_cannot_be_used_says_what_to_do(
    providers: dict[str, dict[str, Any]], complaint: str
) -> None:
    use_reader(SecretReader(SecretSettings(providers=providers)))

    with pytest.raises(SecretUnavailable, match=complaint):
        read_secret("secret://vault/db")


def test_the_settings_of_a_process_name_its_providers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "db").write_text(VALUE)
    (tmp_path / "secrets" / "db").chmod(0o600)
    (tmp_path / "boyd.toml").write_text('[secrets.providers.files]\nfolder = "secrets"\n')
    load_settings()

    assert read_secret("secret://files/db") == VALUE
    assert clean(f"it is {VALUE}") == "it is [redacted]"


def test_params_are_filled_at_any_depth_and_stay_as_they_were() -> None:
    params = {"a": "secret://keeper/db", "b": {"c": ["x", "secret://keeper/db"]}, "n": 1}
    with keep_secrets({"db": VALUE}):
        assert fill_secrets(params) == {"a": VALUE, "b": {"c": ["x", VALUE]}, "n": 1}
    assert dict(places_in(params)) == {"a": "secret://keeper/db", "b.c.1": "secret://keeper/db"}


def test_a_reference_within_a_text_is_only_text() -> None:
    params = {"a": "see secret://keeper/db"}

    assert fill_secrets(params) is params


def test_a_reference_within_a_secret_is_only_text() -> None:
    with keep_secrets({"db": "secret://keeper/other", "other": VALUE}):
        assert fill_secrets({"a": "secret://keeper/db"}) == {"a": "secret://keeper/other"}


def test_a_call_may_not_name_any_number_of_secrets() -> None:
    params = {str(n): f"secret://keeper/{n}" for n in range(21)}
    with keep_secrets({str(n): VALUE for n in range(21)}) as keeper:
        with pytest.raises(SecretUnavailable, match="at most 20"):
            fill_secrets(params)
        assert keeper.reads == 0


class Login(BaseModel):
    """A table of options."""

    password: SecretStr
    token: Secret | None = None


class Caller(Plugin):
    """A plugin with secrets in its options."""

    id = "caller"

    class Options(Plugin.Options):
        """Its options."""

        url: SecretStr
        logins: dict[str, Login] = Field(default_factory=dict)


def test_options_are_read_when_they_are_used() -> None:
    with keep_secrets({"url": VALUE, "t": "third-value"}) as keeper:
        login = {"password": "plain-one", "token": "secret://keeper/t"}
        caller = Caller(url="secret://keeper/url", logins={"a": login})
        options = caller.options
        assert keeper.reads == 0

        assert reveal(options.url) == VALUE
        assert options.logins["a"].token.read() == "third-value"
        assert reveal(options.logins["a"].password) == "plain-one"
        keeper.secrets["url"] = "rotated-value"
        assert reveal(options.url) == "rotated-value"


def test_options_show_no_value_and_are_not_read_for_that() -> None:
    with keep_secrets({"url": VALUE, "t": VALUE}) as keeper:
        login = {"password": "plain-one", "token": "secret://keeper/t"}
        options = Caller(url="secret://keeper/url", logins={"a": login}).options
        text = options.model_dump_json() + repr(options)

        assert "secret://keeper/t" in text
        assert VALUE not in text
        assert keeper.reads == 0


@pytest.mark.parametrize("text", ["secret://Keeper/db", "hunter22", {"ref": "hunter22"}])
def test_a_secret_that_is_no_reference_is_refused_without_quoting_it(text: Any) -> None:
    with pytest.raises(PluginError, match="token"):
        Caller(url="x", logins={"a": {"password": "x", "token": text}})


def test_a_secret_has_one_source() -> None:
    with pytest.raises(ValueError, match="needs one of `file`, `env` and `ref`"):
        Secret(env="A", ref="secret://keeper/db")
    with pytest.raises(ConfigError):
        Secret(ref="secret://missing/db").read()
