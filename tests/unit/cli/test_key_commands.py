"""`boyd keys`: a new key is shown, whatever fails afterwards."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from boyd.models.responses import KeyInfo, KeyList, NewKey
from cli_kit import Cli
from http_kit import Handler, serve

INFO = KeyInfo(
    id="a1b2c3d4e5f6",
    name="ci",
    principal="ci",
    person=False,
    scopes=["read"],
    groups=[],
    agents=[],
    created_at=datetime(2026, 3, 1, tzinfo=UTC),
    created_by="ann",
)
NEW = NewKey(**INFO.model_copy(update={"id": "b7c8d9e0f1a2"}).model_dump(), key="boyd_secret")
GONE = '{"type": "/problems/not-found", "title": "t", "status": 404, "detail": "no such key"}'


@contextmanager
def api(*, drops: bool) -> Iterator[str]:
    """An API with a key that cannot be revoked: it *drops* the request, or answers 404."""

    class KeyHandler(Handler):
        def answer(self) -> None:
            self.read_body()
            if self.command == "GET":
                self.reply(200, KeyList(keys=[INFO]).to_json().encode())
            elif self.command == "POST":
                self.reply(201, NEW.to_json().encode())
            elif drops:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
            else:
                self.reply(404, GONE.encode())

    with serve(KeyHandler) as url:
        yield url


@pytest.mark.parametrize("drops", [True, False], ids=["the API dies", "the key is gone"])
@pytest.mark.parametrize("form", ["table", "json"])
def test_a_rotated_key_is_shown_although_the_old_one_cannot_be_revoked(
    tmp_path: Path, drops: bool, form: str
) -> None:
    with api(drops=drops) as url:
        cli = Cli(tmp_path, BOYD_API_KEY="boyd_mine", BOYD_URL=url)
        result = cli.result("keys", "rotate", "a1", "--revoke", "-o", form)

    assert result.exit_code != 0
    key = json.loads(result.stdout)["key"] if form == "json" else result.stdout.strip()
    assert key == "boyd_secret"
    assert f"the new key {NEW.id} is valid, but the old key was not revoked" in result.stderr
    assert f"keys revoke {INFO.id}`" in result.stderr


@pytest.mark.parametrize(
    ("options", "ends_at", "seconds"),
    [
        ([], None, None),
        ([], INFO.created_at + timedelta(days=90), 90 * 86400),
        (["--expires", "1d"], INFO.created_at + timedelta(days=90), 86400),
    ],
)
def test_a_rotated_key_lives_as_long_as_the_old_one_was_meant_to(
    tmp_path: Path, options: list[str], ends_at: datetime | None, seconds: float | None
) -> None:
    created: list[dict[str, object]] = []

    class KeyHandler(Handler):
        def answer(self) -> None:
            body = self.read_body()
            if self.command == "GET":
                keys = [INFO.patched({"expires_at": ends_at})]
                self.reply(200, KeyList(keys=keys).to_json().encode())
            else:
                created.append(json.loads(body))
                self.reply(201, NEW.to_json().encode())

    with serve(KeyHandler) as url:
        Cli(tmp_path, BOYD_API_KEY="boyd_mine", BOYD_URL=url)("keys", "rotate", "a1", *options)

    assert [body.get("expiresIn") for body in created] == [seconds]
