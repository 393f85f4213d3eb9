"""Keys of the HTTP API: made once, kept hashed, checked and counted in one step."""

from __future__ import annotations

import re

import fakeredis
import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from boyd.models import Actor
from boyd.store import ApiKeys, Store
from boyd.store.keys import API_KEYS
from boyd_cli.commands.key_commands import keys as keys_command

MAKER = Actor(principal="maker", person=True)


@pytest.fixture
def store() -> Store:
    return Store(fakeredis.FakeRedis(decode_responses=True))


@pytest.fixture
def access(store: Store) -> ApiKeys:
    return store.api_keys


def test_a_key_is_let_in_by_its_text_and_stands_for_its_principal(access: ApiKeys) -> None:
    key, text = access.create(
        "ci", "bot:ci", ["read", "runs"], by=MAKER, groups=["builders"], agents=["a"]
    )
    admitted = access.admit(text, 10, 10)

    assert admitted.refused is None
    assert admitted.key == key
    assert re.fullmatch(r"boyd_[a-z0-9]{12}_[\w-]{43}", text or "")
    assert key.actor("192.0.2.1") == Actor(
        principal="bot:ci", groups=["builders"], key=key.id, address="192.0.2.1"
    )
    assert key.allows("read")
    assert not key.allows("actions")
    assert key.sees("a")
    assert not key.sees("b")


def test_neither_a_secret_nor_a_key_is_kept(store: Store, access: ApiKeys) -> None:
    _, text = access.create("ci", "bot", ["read"], by=MAKER)
    stored_text = str(store.client.hgetall(API_KEYS)) + str(store.audit_trail.open_stream)

    assert text is not None
    assert text.split("_", 2)[2] not in stored_text


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-1] + ("A" if text[-1] != "A" else "B"),
        lambda text: text[:5] + "zzzzzzzzzzzz" + text[17:],
        lambda text: text + "x",
        lambda text: text.upper(),
        lambda text: "",
        lambda text: text + "\n",
    ],
)
def test_any_other_text_is_unknown(access: ApiKeys, change: object) -> None:
    _, text = access.create("ci", "bot", ["read"], by=MAKER)
    assert callable(change)
    admitted = access.admit(change(text), 10, 10)

    assert admitted.refused == "unknown"
    assert admitted.key is None


def test_a_key_expires(access: ApiKeys) -> None:
    _, short = access.create("short", "bot", ["read"], by=MAKER, expires_in=-0.001)
    _, long = access.create("long", "bot", ["read"], by=MAKER, expires_in=60)

    assert access.admit(short, 10, 10).refused == "expired"
    assert access.admit(long, 10, 10).refused is None


def test_a_revoked_key_is_unknown_and_gone(access: ApiKeys) -> None:
    key, text = access.create("ci", "bot", ["read"], by=MAKER)

    assert access.revoke(key.id, MAKER)
    assert not access.revoke(key.id, MAKER)
    assert access.admit(text, 10, 10).refused == "unknown"
    assert access.all() == []
    assert not access.is_good(key.id)


def test_making_and_revoking_is_audited_with_who_did_it(store: Store, access: ApiKeys) -> None:
    key, _ = access.create("ci", "bot", ["read"], by=MAKER)
    access.revoke(key.id, MAKER)
    entries = [fields for _, fields in store.client.xrange(store.audit_trail.open_stream)]

    assert [(e["kind"], e["who"], e["apiKey"]) for e in entries] == [
        ("key.created", "maker", key.id),
        ("key.revoked", "maker", key.id),
    ]


def test_creating_a_key_again_with_its_id_does_not_return_its_text(access: ApiKeys) -> None:
    first, text = access.create("ci", "bot", ["read"], by=MAKER, key_id="abcdefabcdef")
    again, nothing = access.create("ci", "bot", ["admin"], by=MAKER, key_id="abcdefabcdef")

    assert text is not None
    assert nothing is None
    assert again == first
    assert access.all() == [first]


@pytest.mark.parametrize("change", [{"principal": "a b"}, {"scopes": []}, {"name": ""}])
def test_a_key_with_invalid_values_is_refused(access: ApiKeys, change: dict[str, object]) -> None:
    values: dict[str, object] = {"name": "n", "principal": "p", "scopes": ["read"], **change}
    with pytest.raises(ValidationError):
        access.create(**values, by=MAKER)  # type: ignore[arg-type]  # that is the test

    assert access.all() == []


@pytest.mark.parametrize("unseen", ["\u200b", "\u202e", "\x7f", "\u3164", "\ufe0f"])
def test_a_new_key_cannot_read_as_another_but_those_of_before_can_be_used(
    store: Store, access: ApiKeys, unseen: str
) -> None:
    key, text = access.create("ci", "alice", ["read"], by=MAKER)
    older = key.patched({"principal": f"a{unseen}lice"})
    with pytest.raises(ValidationError, match="invisible"):
        access.create("ci", older.principal, ["read"], by=MAKER)
    store.client.hset(API_KEYS, key.id, older.to_json())

    admitted = access.admit(text, 10, 10).key
    assert admitted is not None
    assert admitted.actor().principal == older.principal
    assert access.all() == [older]


# The allowance


def test_requests_beyond_the_burst_are_refused_with_the_time_to_wait(access: ApiKeys) -> None:
    _, text = access.create("ci", "bot", ["read"], by=MAKER)
    let_in = [access.admit(text, 0.1, 3) for _ in range(5)]

    assert [admission.refused for admission in let_in] == [None, None, None, "too-many", "too-many"]
    assert [admission.remaining for admission in let_in] == [2, 1, 0, 0, 0]
    assert 9 < let_in[3].wait <= 10
    assert 29 < let_in[3].whole <= 30


def test_the_allowance_refills_steadily(access: ApiKeys) -> None:
    _, text = access.create("ci", "bot", ["read"], by=MAKER)
    for _ in range(20):
        access.admit(text, 1000, 10)
    while access.admit(text, 1000, 10).refused:
        pass

    assert access.admit("boyd_" + "a" * 12 + "_" + "a" * 43, 1000, 10).refused == "unknown"


def test_each_key_and_nobody_have_allowances_of_their_own(access: ApiKeys) -> None:
    _, first = access.create("one", "bot", ["read"], by=MAKER)
    _, two = access.create("two", "bot", ["read"], by=MAKER)

    assert [access.admit(text, 0.1, 1).refused for text in (first, first, two, None, None)] == [
        *(None, "too-many", None, None, "too-many")
    ]


def test_a_wrong_secret_uses_up_nobodys_allowance(store: Store, access: ApiKeys) -> None:
    _, text = access.create("ci", "bot", ["read"], by=MAKER)
    assert text is not None
    wrong = text[:-1] + ("A" if text[-1] != "A" else "B")
    for _ in range(5):
        access.admit(wrong, 0.1, 1)

    assert access.admit(text, 0.1, 1).refused is None
    assert len(store.client.keys("*bucket*")) == 1


def test_the_counter_of_requests_expires(store: Store, access: ApiKeys) -> None:
    _, text = access.create("ci", "bot", ["read"], by=MAKER)
    access.admit(text, 1, 5)
    [bucket] = store.client.keys("*bucket*")

    assert 0 < store.client.pttl(bucket) <= 1000


def test_a_clock_that_steps_back_locks_nobody_out(store: Store, access: ApiKeys) -> None:
    _, text = access.create("ci", "bot", ["read"], by=MAKER)
    access.admit(text, 1, 5)
    [bucket] = store.client.keys("*bucket*")
    store.client.set(bucket, "9000000000000000")

    assert access.admit(text, 1, 5).refused is None


# The command line


@pytest.fixture
def cli(store: Store, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setattr("boyd_cli.commands.key_commands.open_store", lambda _: store)
    return CliRunner()


def test_the_command_prints_the_key_alone_and_once(cli: CliRunner, access: ApiKeys) -> None:
    arguments = ["create", "ops", "--principal", "alice", "--person", "--scope", "read"]
    options = ["--scope", "approvals", "--group", "ops", "--agent", "a", "--expires", "90d"]
    done = cli.invoke(keys_command, [*arguments, *options])
    [key] = access.all()

    assert done.exit_code == 0
    assert access.admit(done.stdout.removesuffix("\n"), 1, 1).key == key
    assert (key.person, key.scopes, key.groups, key.agents) == (
        *(True, ["read", "approvals"], ["ops"], ["a"]),
    )
    assert key.expires_at is not None
    assert round((key.expires_at - key.created_at).total_seconds()) == 90 * 86400


def test_the_list_shows_no_hash(cli: CliRunner, access: ApiKeys) -> None:
    key, _ = access.create("ci", "bot", ["read"], by=MAKER)

    for form in ("table", "json"):
        output = cli.invoke(keys_command, ["list", "-o", form]).stdout
        assert key.id in output
        assert key.hash not in output


def test_a_key_can_be_revoked_by_command(cli: CliRunner, access: ApiKeys) -> None:
    key, _ = access.create("ci", "bot", ["read"], by=MAKER)

    assert cli.invoke(keys_command, ["revoke", key.id]).exit_code == 0
    assert access.all() == []
    assert cli.invoke(keys_command, ["revoke", key.id]).exit_code == 4


@pytest.mark.parametrize("time", ["90", "0d", "d", "-1d", "1y", "99999999999d"])
def test_a_time_that_is_none_is_refused(cli: CliRunner, access: ApiKeys, time: str) -> None:
    arguments = ["create", "x", "--principal", "x", "--scope", "read", f"--expires={time}"]

    assert cli.invoke(keys_command, arguments).exit_code == 2
    assert access.all() == []


def test_a_principal_with_a_space_is_a_usage_error(cli: CliRunner) -> None:
    done = cli.invoke(keys_command, ["create", "x", "--principal", "a b", "--scope", "read"])

    assert done.exit_code == 2
    assert "principal" in done.stderr
