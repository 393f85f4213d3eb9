"""Providers of secrets, against emulated servers and ones that misbehave."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from boyd.errors import SecretUnavailable
from boyd_secrets.aws_signature import Credentials, SignedService, sign
from boyd_secrets.local_providers import SecretFiles, SecretVariables
from boyd_secrets.secrets_manager import SecretsManager
from boyd_secrets.vault import Vault
from secret_kit import (
    EmulatedSecretsManager,
    EmulatedVault,
    SecretServer,
    secret_server,
    send_raw,
    trickle,
)

TOKEN = "root-token-of-tests"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "secrets"
    place.mkdir(mode=0o700)
    write(place / "db", "hunter22\n")
    return place


def write(path: Path, text: str, mode: int = 0o600) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def files(folder: Path, **options: Any) -> SecretFiles:
    return SecretFiles(SecretFiles.Options(folder=folder, **options))


def test_a_file_is_read_without_the_end_of_its_line(folder: Path) -> None:
    assert files(folder).read("db") == "hunter22"


def test_a_file_of_several_lines_is_read_as_it_is(folder: Path) -> None:
    write(folder / "key", "-----BEGIN KEY-----\nabc\n")

    assert files(folder).read("key") == "-----BEGIN KEY-----\nabc\n"


def test_a_changed_file_counts_at_once(folder: Path) -> None:
    provider = files(folder)
    provider.read("db")
    write(folder / "db", "hunter33\n")

    assert provider.read("db") == "hunter33"


def test_links_within_the_folder_are_followed(folder: Path) -> None:
    write(folder / "..2026_01" / "token", "a volume of Kubernetes")
    (folder / "..data").symlink_to("..2026_01")
    (folder / "token").symlink_to("..data/token")

    assert files(folder).read("token") == "a volume of Kubernetes"


@pytest.mark.parametrize("path", ["../outside", "link", "down/../../outside", "/etc/hostname"])
def test_nothing_outside_of_the_folder_is_read(folder: Path, path: str) -> None:
    write(folder.parent / "outside", "not yours")
    (folder / "link").symlink_to("../outside")
    (folder / "down").mkdir()

    with pytest.raises(SecretUnavailable) as refusal:
        files(folder).read(path)
    assert "not yours" not in str(refusal.value)


def test_a_file_that_every_user_may_use_is_refused_unless_that_is_wanted(folder: Path) -> None:
    write(folder / "open", "everybody's", mode=0o644)

    with pytest.raises(SecretUnavailable, match="mode 644"):
        files(folder).read("open")
    assert files(folder, any_mode=True).read("open") == "everybody's"


def test_a_pipe_a_folder_and_a_file_without_text_are_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe", 0o600)
    write(folder / "long", "x" * 300_000)
    (folder / "binary").write_bytes(b"\xff\x00\xfe")
    (folder / "binary").chmod(0o600)
    (folder / "loop").symlink_to("loop")

    for name in ("pipe", "long", "binary", "loop", "missing", "."):
        with pytest.raises(SecretUnavailable):
            files(folder).read(name)


def test_only_variables_with_the_prefix_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APP_PASSWORD", "hunter22")
    monkeypatch.setenv("OTHER_PASSWORD", "not yours")
    provider = SecretVariables(SecretVariables.Options(prefix="APP_"))

    assert provider.read("APP_PASSWORD") == "hunter22"
    for name in ("OTHER_PASSWORD", "APP_MISSING"):
        with pytest.raises(SecretUnavailable) as refusal:
            provider.read(name)
        assert "not yours" not in str(refusal.value)


def test_the_environment_needs_a_prefix() -> None:
    with pytest.raises(ValidationError):
        SecretVariables.Options(prefix="")


@pytest.fixture
def vault() -> Iterator[EmulatedVault]:
    with secret_server(EmulatedVault) as server:
        server.secrets["db/prod"] = {"password": "hunter22", "user": "boyd"}
        yield server


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    write(tmp_path / "token", f"{TOKEN}\n")
    return tmp_path / "token"


def by_token(vault: SecretServer, token_file: Path, **options: Any) -> Vault:
    token = {"file": token_file}
    return Vault(Vault.Options(address=vault.url, token=token, **options))


def test_vault_gives_the_fields_of_a_secret(vault: EmulatedVault, token_file: Path) -> None:
    assert by_token(vault, token_file).read("db/prod") == {"password": "hunter22", "user": "boyd"}
    (method, path, headers, _), *more = vault.requests
    assert (method, path, more) == ("GET", "/v1/secret/data/db/prod", [])
    assert (headers["X-Vault-Token"], headers["X-Vault-Request"]) == (TOKEN, "true")


def test_vault_is_asked_in_its_namespace(vault: EmulatedVault, token_file: Path) -> None:
    vault.namespace = "team/a"

    assert by_token(vault, token_file, namespace="team/a").read("db/prod")
    with pytest.raises(SecretUnavailable, match="no such secret"):
        by_token(vault, token_file).read("db/prod")


def test_a_new_token_in_the_file_counts_at_once(vault: EmulatedVault, token_file: Path) -> None:
    provider = by_token(vault, token_file)
    vault.tokens = {"rotated-token"}
    with pytest.raises(SecretUnavailable, match="may not read it"):
        provider.read("db/prod")
    write(token_file, "rotated-token")

    assert provider.read("db/prod")


def test_an_app_role_logs_in_once(vault: EmulatedVault, tmp_path: Path) -> None:
    vault.app_roles["web"] = "the-secret-id"
    write(tmp_path / "id", "the-secret-id")
    role = {"role_id": "web", "secret_id": {"file": tmp_path / "id"}}
    provider = Vault(Vault.Options(address=vault.url, approle=role))
    provider.read("db/prod")
    provider.read("db/prod")

    assert vault.logins == 1


def test_a_revoked_login_is_renewed(vault: EmulatedVault, tmp_path: Path) -> None:
    vault.pods["web"] = "jwt-of-the-pod"
    write(tmp_path / "jwt", "jwt-of-the-pod")
    pod = {"role": "web", "token_file": tmp_path / "jwt"}
    provider = Vault(Vault.Options(address=vault.url, kubernetes=pod))
    provider.read("db/prod")
    vault.tokens = set()

    assert provider.read("db/prod")
    assert vault.logins == 2


def test_a_login_that_is_over_is_renewed(
    vault: EmulatedVault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault.app_roles["web"] = "the-secret-id"
    write(tmp_path / "id", "the-secret-id")
    role = {"role_id": "web", "secret_id": {"file": tmp_path / "id"}}
    provider = Vault(Vault.Options(address=vault.url, approle=role))
    provider.read("db/prod")
    later = time.monotonic() + vault.lease
    monkeypatch.setattr("boyd_secrets.vault.time", SimpleNamespace(monotonic=lambda: later))
    provider.read("db/prod")

    assert vault.logins == 2


def test_a_refused_login_does_not_quote_what_was_sent(vault: EmulatedVault, tmp_path: Path) -> None:
    write(tmp_path / "id", "the-wrong-secret-id")
    role = {"role_id": "web", "secret_id": {"file": tmp_path / "id"}}
    provider = Vault(Vault.Options(address=vault.url, approle=role))

    with pytest.raises(SecretUnavailable, match="login by approle is refused") as refusal:
        provider.read("db/prod")
    assert "the-wrong-secret-id" not in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"address": "https://vault.example.com"}, "one of token, approle and kubernetes"),
        ({"address": "http://vault.example.com", "token": {"env": "T"}}, "https"),
        ({"address": "https://u:p@vault.example.com", "token": {"env": "T"}}, "password"),
        ({"address": "https://vault.example.com", "token": "secret://vault/x"}, "file.*env"),
    ],
)
def test_options_of_vault_that_make_no_sense_are_refused(
    options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Vault.Options(**options)


HOSTILE = {
    "huge": send_raw(b'{"data": "' + b"x" * 2_000_000 + b'"}'),
    "many values": send_raw(b"[" + b"1," * 100_000 + b"1]"),
    "deep": send_raw(b"[" * 100_000),
    "not JSON": send_raw(b"<html>hunter22</html>"),
    "a list": send_raw(b'["hunter22"]'),
    "other fields": send_raw(b'{"data": ["hunter22"]}'),
    "a redirect": send_raw(b"", 307, Location="http://127.0.0.1:1/hunter22"),
    "an error": send_raw(b'{"errors": ["hunter22"]}', 500),
    "sealed": send_raw(b'{"errors": ["hunter22"]}', 503),
    "slow": trickle,
    "a wrong length": send_raw(b"{}", Content_Length="hunter22"),
    "broken compression": send_raw(b"hunter22", Content_Encoding="gzip"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_server_gives_a_short_error_that_quotes_nothing_of_it(
    kind: str, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG")
    with secret_server(SecretServer) as server:
        server.misbehaves = HOSTILE[kind]
        for provider in (
            by_token(server, token_file, timeout=0.5),
            aws(server, timeout=0.5),
        ):
            with pytest.raises(SecretUnavailable) as refusal:
                provider.read("db/prod")
            assert "hunter22" not in str(refusal.value)
            assert len(str(refusal.value)) < 300


def test_a_server_that_is_away_is_named(token_file: Path) -> None:
    with secret_server(SecretServer) as server:
        pass
    with pytest.raises(SecretUnavailable, match=f"{server.url} does not answer"):
        by_token(server, token_file).read("db/prod")


#: The suite that AWS publishes for Signature Version 4, as far as requests here have such parts.
_SUITE_TOKEN = (
    "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPf"
    "IeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7W"
    "Z0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8F"
    "DrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="
)


@pytest.mark.parametrize(
    ("method", "headers", "body", "token", "signature"),
    [
        ("GET", {}, b"", "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", {}, b"", "", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        (
            "POST",
            {"Content-Type": "application/x-www-form-urlencoded"},
            b"Param1=value1",
            "",
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
        (
            "POST",
            {},
            b"",
            _SUITE_TOKEN,
            "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
        ),
    ],
)
def test_signatures_are_those_that_aws_publishes(
    method: str, headers: dict[str, str], body: bytes, token: str, signature: str
) -> None:
    credentials = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", token)
    service = SignedService(credentials, "us-east-1", "service")
    at = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
    signed = sign(method, "https://example.amazonaws.com/", headers, body, service, at)

    assert signed["authorization"].endswith(f"Signature={signature}")


@pytest.fixture
def manager() -> Iterator[EmulatedSecretsManager]:
    with secret_server(EmulatedSecretsManager) as server:
        server.secrets["prod/db"] = {"SecretString": '{"password": "hunter22"}'}
        yield server


def aws(server: SecretServer, **options: Any) -> SecretsManager:
    chosen = SecretsManager.Options(region="eu-central-1", endpoint=server.url, **options)
    return SecretsManager(chosen)


def test_a_signed_request_gives_the_secret(
    manager: EmulatedSecretsManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", manager.credentials.key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", manager.credentials.secret)

    assert aws(manager).read("prod/db") == '{"password": "hunter22"}'
    with pytest.raises(SecretUnavailable, match="ResourceNotFoundException"):
        aws(manager).read("prod/other")


def test_a_binary_secret_is_read_as_text(
    manager: EmulatedSecretsManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", manager.credentials.key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", manager.credentials.secret)
    manager.secrets["b"] = {"SecretBinary": base64.b64encode(b"hunter22").decode()}
    manager.secrets["c"] = {"SecretBinary": base64.b64encode(b"\xff\xfe").decode()}

    assert aws(manager).read("b") == "hunter22"
    with pytest.raises(SecretUnavailable, match="not text"):
        aws(manager).read("c")


def test_a_wrong_key_is_refused(
    manager: EmulatedSecretsManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRONG_ID", manager.credentials.key_id)
    monkeypatch.setenv("WRONG_KEY", "not-the-key-of-anybody")
    keys = {"access_key_id": {"env": "WRONG_ID"}, "secret_access_key": {"env": "WRONG_KEY"}}

    with pytest.raises(SecretUnavailable, match="InvalidSignatureException"):
        aws(manager, **keys).read("prod/db")


def test_a_container_asks_for_its_credentials(
    manager: EmulatedSecretsManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{manager.url}/credentials")
    provider = aws(manager)
    provider.read("prod/db")
    provider.read("prod/db")

    assert [path for _, path, _, _ in manager.requests] == ["/credentials", "/", "/"]


def test_a_foreign_host_is_not_asked_for_credentials(
    manager: EmulatedSecretsManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://evil.example/credentials")

    with pytest.raises(SecretUnavailable, match="foreign host"):
        aws(manager).read("prod/db")


def test_without_credentials_nothing_is_asked(manager: EmulatedSecretsManager) -> None:
    with pytest.raises(SecretUnavailable, match="no credentials"):
        aws(manager).read("prod/db")
    assert manager.requests == []
