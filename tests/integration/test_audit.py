"""The audit trail on a real Redis: tampering is found and named, sealers race, the CLI tells it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
from click.testing import CliRunner, Result

from boyd.models import Actor, AuditHead, Misfit
from boyd.store import Audit, Sealing, Store
from boyd.store.audit_chain import Link, seal
from boyd.store.keys import AGENTS, Keys
from boyd_cli import boyd
from harness import Deployment, patient_client, wait_until

pytestmark = pytest.mark.real

ANN = Actor(principal="ann@example.com", person=True)
KEY = "a secret of some length"
KEYS = Keys("a")

Raw = list[tuple[str, dict[str, str]]]


@pytest.fixture(params=[None, KEY], ids=["plain", "keyed"])
def sealing(request: pytest.FixtureRequest) -> Sealing:
    return Sealing(request.param)


@pytest.fixture
def whole(redis_url: str, sealing: Sealing) -> Iterator[Store]:
    client = patient_client(redis_url)
    yield Store(client, "test", sealing=sealing)
    client.close()


@pytest.fixture
def stores(redis_url: str) -> Iterator[list[Store]]:
    """As many processes would have them."""
    clients = [patient_client(redis_url) for _ in range(8)]
    yield [Store(client, sealing=Sealing(KEY)) for client in clients]
    for client in clients:
        client.close()


@pytest.fixture
def chain(whole: Store) -> Audit:
    """A sealed chain of ten."""
    return fill(whole.agent("a").audit_trail, 10)


def fill(chain: Audit, count: int) -> Audit:
    for number in range(1, count + 1):
        chain.append("test", ANN, number=number, before="off", after="on")
    chain.seal()
    return chain


def rewrite(whole: Store, change: Callable[[Raw], Any]) -> None:
    """Do to the chain what somebody can do who may write to Redis."""
    raw = whole.client.xrange(KEYS.audit)
    change(raw)
    whole.client.delete(KEYS.audit)
    for place, fields in raw:
        whole.client.xadd(KEYS.audit, fields, id=place)


def misfit(chain: Audit, **noted: AuditHead) -> Misfit:
    verification = chain.verify(**noted)
    assert not verification.ok
    assert verification.misfit is not None
    return verification.misfit


def fault_of(chain: Audit, **noted: AuditHead) -> tuple[int, str]:
    fault = misfit(chain, **noted)
    return fault.seq, fault.why


# Every kind of tampering


def test_an_untouched_chain_fits(chain: Audit) -> None:
    result = chain.verify()

    assert result.ok
    assert result.checked == 10
    assert result.head == chain.head()


@pytest.mark.parametrize("seq", [1, 5, 10])
@pytest.mark.parametrize("field", ["at", "body", "prev", "hash", "seq"])
def test_a_changed_field_is_found(whole: Store, chain: Audit, seq: int, field: str) -> None:
    def change(raw: Raw) -> None:
        fields = raw[seq - 1][1]
        fields[field] = fields[field].replace("on", "no") if field == "body" else "1-1"

    rewrite(whole, change)

    assert fault_of(chain) == (seq, "changed")


def test_a_changed_seal_is_detected(whole: Store, chain: Audit) -> None:
    rewrite(whole, lambda raw: raw[4][1].__setitem__("by", "hmac:01234567"))

    assert fault_of(chain) == (5, "wrong key")


def test_a_changed_principal_is_detected(whole: Store, chain: Audit) -> None:
    def change(raw: Raw) -> None:
        raw[4][1]["body"] = raw[4][1]["body"].replace("ann@", "eve@")

    at = next(entry.id for entry in chain.entries() if entry.seq == 5)
    rewrite(whole, change)

    assert misfit(chain).id == at
    assert fault_of(chain) == (5, "changed")


@pytest.mark.parametrize("seq", [1, 5])
def test_a_removed_entry_is_missing(whole: Store, chain: Audit, seq: int) -> None:
    whole.client.xdel(KEYS.audit, f"{seq}-0")

    assert fault_of(chain) == (seq, "missing")


def test_an_entry_whose_gap_was_closed_is_missing(whole: Store, chain: Audit) -> None:
    def close(raw: Raw) -> None:
        fields = [fields for _, fields in raw]
        del fields[4]
        raw[:] = [(f"{n}-0", entry) for n, entry in enumerate(fields, 1)]

    rewrite(whole, close)

    assert fault_of(chain) == (5, "missing")


def test_swapped_entries_are_reordered(whole: Store, chain: Audit) -> None:
    def swap(raw: Raw) -> None:
        raw[4], raw[7] = (raw[4][0], raw[7][1]), (raw[7][0], raw[4][1])

    rewrite(whole, swap)

    assert fault_of(chain) == (5, "reordered")


def test_an_entry_between_two_is_inserted(whole: Store, chain: Audit) -> None:
    def squeeze(raw: Raw) -> None:
        raw.insert(5, ("5-1", {**raw[4][1]}))

    rewrite(whole, squeeze)

    assert fault_of(chain) == (6, "inserted")


def test_an_entry_for_which_others_moved_is_inserted(whole: Store, chain: Audit) -> None:
    def insert(raw: Raw) -> None:
        fields = [fields for _, fields in raw]
        fields.insert(4, {**fields[4], "body": '{"kind":"false"}'})
        raw[:] = [(f"{n}-0", entry) for n, entry in enumerate(fields, 1)]

    rewrite(whole, insert)

    assert fault_of(chain) == (5, "inserted")


@pytest.mark.parametrize("sealing", [Sealing()], ids=["plain"])
def test_an_inserted_entry_with_a_hash_that_fits_is_inserted(whole: Store, chain: Audit) -> None:
    forger = Sealing(chain=KEYS.prefix)

    def insert(raw: Raw) -> None:
        links = [Link.read(*item) for item in raw]
        false = seal(forger, links[3].hash, 5, "1-1", {"kind": "false"})
        raw[:] = [
            (f"{n}-0", fields_of(link)) for n, link in enumerate([*links[:4], false, *links[4:]], 1)
        ]

    rewrite(whole, insert)

    assert fault_of(chain) == (5, "inserted")


@pytest.mark.parametrize("sealing", [Sealing()], ids=["plain"])
def test_a_changed_entry_with_a_hash_that_fits_is_found_by_the_next(
    whole: Store, chain: Audit
) -> None:
    forger = Sealing(chain=KEYS.prefix)

    def change(raw: Raw) -> None:
        link = Link.read(*raw[4])
        raw[4] = (raw[4][0], fields_of(seal(forger, link.prev, 5, link.at, {"kind": "false"})))

    rewrite(whole, change)

    assert fault_of(chain) == (5, "changed")


def test_an_entry_at_the_end_that_no_sealer_made_is_inserted(whole: Store, chain: Audit) -> None:
    forger = Sealing(whole.sealing.key, chain=KEYS.prefix)
    head = chain.head()
    assert head
    false = seal(forger, head.hash, 11, "1-1", {"kind": "false"})
    whole.client.xadd(KEYS.audit, fields_of(false), id="11-0")

    assert fault_of(chain) == (11, "inserted")


def test_a_cut_off_end_is_missing(whole: Store, chain: Audit) -> None:
    whole.client.xdel(KEYS.audit, "9-0", "10-0")

    assert fault_of(chain) == (9, "missing")


def test_a_chain_that_is_gone_is_missing(whole: Store, chain: Audit) -> None:
    whole.client.delete(KEYS.audit)

    assert fault_of(chain) == (1, "missing")


def test_a_chain_put_back_to_an_earlier_state_is_found_by_a_noted_head(
    whole: Store, chain: Audit
) -> None:
    raw, head = whole.client.xrange(KEYS.audit), whole.client.hgetall(KEYS.audit_head)
    fill(chain, 3)
    noted = chain.head()
    assert noted

    whole.client.hset(KEYS.audit_head, mapping=head)
    rewrite(whole, lambda now: now.__setitem__(slice(None), raw))

    assert chain.verify().ok
    assert fault_of(chain, expect=noted) == (11, "missing")


def test_an_emptied_chain_is_found_by_a_noted_head(whole: Store, chain: Audit) -> None:
    noted = chain.head()
    assert noted
    whole.client.delete(KEYS.audit, KEYS.audit_head)

    assert fault_of(chain, expect=noted) == (1, "missing")


def test_a_chain_from_another_agent_does_not_fit(whole: Store, chain: Audit) -> None:
    other, theirs = fill(whole.agent("b").audit_trail, 10), Keys("b")
    entries = whole.client.xrange(theirs.audit)
    whole.client.hset(KEYS.audit_head, mapping=whole.client.hgetall(theirs.audit_head))
    rewrite(whole, lambda now: now.__setitem__(slice(None), entries))

    assert other.verify().ok
    assert fault_of(chain) == (1, "changed")


def forge_chain(whole: Store) -> None:
    """The whole chain, forged by somebody without the key, with hashes that fit."""
    forger = Sealing(chain=KEYS.prefix)

    def forge(raw: Raw) -> None:
        prev = ""
        for n, (place, fields) in enumerate(raw, 1):
            body = json.loads(fields["body"]) | {"who": "eve@example.com"}
            link = seal(forger, prev, n, fields["at"], body)
            raw[n - 1] = (place, fields_of(link))
            prev = link.hash
        whole.client.hset(KEYS.audit_head, mapping={"hash": prev, "by": "sha256"})

    rewrite(whole, forge)


@pytest.mark.parametrize("sealing", [Sealing()], ids=["plain"])
def test_without_a_key_only_a_known_head_reveals_a_forged_chain(whole: Store, chain: Audit) -> None:
    noted = chain.head()
    assert noted
    forge_chain(whole)

    assert chain.verify().ok
    assert fault_of(chain, expect=noted) == (10, "changed")


@pytest.mark.parametrize("sealing", [Sealing(KEY)], ids=["keyed"])
def test_a_chain_forged_without_the_key_is_detected(whole: Store, chain: Audit) -> None:
    forge_chain(whole)

    assert fault_of(chain) == (1, "wrong key")


@pytest.mark.parametrize("sealing", [Sealing(KEY)], ids=["keyed"])
def test_a_forger_who_copies_the_name_of_the_key_does_not_fit_either(
    whole: Store, chain: Audit
) -> None:
    name = chain.page(1).entries[0].sealed_by
    forge_chain(whole)

    def pretend(raw: Raw) -> None:
        for _, fields in raw:
            fields["by"] = name

    rewrite(whole, pretend)

    assert fault_of(chain) == (1, "changed")


@pytest.mark.parametrize("sealing", [Sealing(KEY)], ids=["keyed"])
def test_verifying_without_the_audit_key_is_reported(whole: Store, chain: Audit) -> None:
    fault = misfit(Store(whole.client).agent("a").audit_trail)

    assert (fault.seq, fault.why) == (1, "wrong key")
    assert "instead of no audit key" in fault.detail


def test_after_a_change_of_the_key_the_chain_is_verified_from_a_noted_head(
    whole: Store, chain: Audit
) -> None:
    noted = chain.head()
    assert noted
    renewed = fill(Store(whole.client, sealing=Sealing("another")).agent("a").audit_trail, 3)

    assert fault_of(renewed) == (1, "wrong key")
    assert renewed.verify(begin=noted).checked == 3
    whole.client.xdel(KEYS.audit, "10-0")
    assert fault_of(renewed, begin=noted) == (10, "missing")


def test_a_head_that_is_trusted_stands_in_for_a_checkpoint_of_the_old_key(
    whole: Store, chain: Audit
) -> None:
    noted = fill(cap_trail(whole), 5).head()
    assert noted
    renewed = fill(Store(whole.client, sealing=Sealing("another")).agent("a").audit_trail, 3)

    assert fault_of(renewed) == (5, "wrong key")
    assert renewed.verify(begin=noted).checked == 3


def test_garbage_in_the_chain_is_named_and_can_still_be_read(whole: Store, chain: Audit) -> None:
    rewrite(whole, lambda raw: raw.__setitem__(4, ("5-0", {"at": "9" * 30, "seq": "9" * 5000})))

    assert fault_of(chain) == (5, "wrong key")
    assert chain.page(10).entries[5].kind == "unreadable"


# The cap


def cap_trail(whole: Store, keep: int = 10) -> Audit:
    return Store(whole.client, sealing=Sealing(whole.sealing.key, keep)).agent("a").audit_trail


def test_a_trimmed_head_cannot_be_expected(whole: Store, chain: Audit) -> None:
    early = AuditHead(seq=3, hash=next(e.hash for e in chain.entries() if e.seq == 3))
    last = chain.head()
    assert last
    fill(cap_trail(whole), 10)

    assert chain.verify(expect=last).ok
    assert chain.verify(begin=last).checked == 10
    assert fault_of(chain, expect=early) == (3, "missing")


def test_entries_removed_from_the_beginning_are_missing_in_spite_of_the_checkpoint(
    whole: Store, chain: Audit
) -> None:
    fill(cap_trail(whole), 5)
    whole.client.xtrim(KEYS.audit, minid="8-0", approximate=False)

    assert fault_of(chain) == (6, "missing")


def test_a_checkpoint_needs_the_key(whole: Store, chain: Audit) -> None:
    fourth = next(entry for entry in chain.entries() if entry.seq == 4)
    forger = Sealing(chain=KEYS.prefix)
    proof = forger.proof(AuditHead(seq=4, hash=fourth.hash))
    note = {"trimmedSeq": "4", "trimmedHash": fourth.hash, "trimmedProof": proof}
    whole.client.xtrim(KEYS.audit, minid="5-0", approximate=False)
    whole.client.hset(KEYS.audit_head, mapping=note)

    if whole.sealing.key:
        assert fault_of(chain) == (4, "wrong key")
    else:
        assert chain.verify().ok


# Sealers at the same time


def test_a_worker_seals_what_is_open(deployment: Deployment) -> None:
    deployment.worker("w", "benchmarks.agents:trivial10")
    agent = deployment.store.agent("trivial10")
    agent.loop_control.pause("test", ANN)
    deployment.store.audit_trail.append("test", ANN)

    wait_until(lambda: agent.audit_trail.head() and deployment.store.audit_trail.head())
    assert agent.audit_trail.page(1).entries[0].who == ANN.principal


def test_sealers_at_the_same_time_lose_and_double_nothing(stores: list[Store]) -> None:
    chains = [store.agent("a").audit_trail for store in stores]
    done = threading.Event()

    def again_and_again(work: Callable[[], Any]) -> None:
        while not done.is_set():
            work()

    def append(chain: Audit, who: int) -> None:
        for number in range(150):
            chain.append("test", ANN, id=f"{who}.{number}")

    def verify() -> None:
        assert chains[7].verify().ok

    with ThreadPoolExecutor(8) as pool:
        seals = [chain.seal for chain in chains[4:7]]
        others = [pool.submit(again_and_again, work) for work in (*seals, verify)]
        writers = [pool.submit(append, chain, n) for n, chain in enumerate(chains[:4])]
        wait(writers)
        done.set()
    for future in (*writers, *others):
        future.result()
    chains[0].seal()
    result = chains[0].verify()

    ids = [entry.what["id"] for entry in chains[0].entries()]
    assert sorted(ids) == sorted(f"{who}.{n}" for who in range(4) for n in range(150))
    assert (result.ok, result.checked, result.waiting) == (True, 600, 0)


def test_trimming_while_somebody_verifies_is_no_tampering(
    whole: Store, chain: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    xrange = whole.client.xrange

    def trim_meanwhile(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(whole.client, "xrange", xrange)
        fill(cap_trail(Store(whole.client, sealing=whole.sealing), 10), 3)
        return xrange(*args, **options)

    monkeypatch.setattr(whole.client, "xrange", trim_meanwhile)
    result = chain.verify()

    assert result.ok
    assert result.checked == 10


# Cost


def test_a_page_costs_the_same_however_many_entries_are_kept(whole: Store, chain: Audit) -> None:
    def cost(cursor: str | None) -> int:
        whole.client.config_resetstat()
        chain.page(5, cursor)
        stats = whole.client.info("commandstats")
        assert set(stats) - {"cmdstat_config|resetstat", "cmdstat_config"} == {"cmdstat_xrevrange"}
        sent: int = whole.client.info("stats")["total_net_output_bytes"]
        return sent

    few = cost(None)
    fill(chain, 3000)
    chain.seal()

    assert cost(None) < 2 * few
    assert cost("1500") < 2 * few


# The commands


class Cli:
    def __init__(self, redis_url: str, key: str | None) -> None:
        self.environment = {"BOYD_REDIS_URL": redis_url} | ({"BOYD_AUDIT_KEY": key} if key else {})

    def __call__(self, *arguments: str, status: int = 0) -> str:
        result: Result = CliRunner().invoke(boyd, ["audit", *arguments], env=self.environment)
        assert result.exit_code == status, (result.output, result.exception)
        return result.stdout


@pytest.fixture
def cli(redis_url: str, whole: Store) -> Cli:
    entry = {
        "id": "a",
        "name": "a",
        "mode": "manual",
        "loopInterval": 60.0,
        "plugins": [],
        "fingerprint": "",
    }
    whole.client.hset(AGENTS, "a", json.dumps(entry))
    return Cli(redis_url, whole.sealing.key)


def test_show_tells_the_last_changes_newest_last(whole: Store, cli: Cli) -> None:
    store = whole.agent("a")
    store.loop_control.pause("main\x1btenance", ANN)
    store.audit_trail.append(
        "approval.approved",
        ANN.patched({"claims": "bob", "address": "192.0.2.7"}),
        approval="0123",
        before="pending",
        after="approved",
        note="fine",
    )
    first, second = cli("show").splitlines()

    assert first.endswith("#1  ann@example.com  agent.paused  running → paused: main tenance")
    assert second.endswith(
        "#2  ann@example.com for bob from 192.0.2.7  approval.approved"
        "  approval=0123  pending → approved: fine"
    )
    assert cli("show", "--limit", "1").splitlines() == [second]
    assert json.loads(cli("show", "--limit", "1", "-o", "json"))["claims"] == "bob"


def test_show_of_an_agent_without_changes_says_so(cli: Cli) -> None:
    assert cli("show") == "No changes recorded yet.\n"


def test_verify_prints_a_head_that_can_be_expected_later(chain: Audit, cli: Cli) -> None:
    (line,) = cli("verify").splitlines()
    head = line.split()[-1]
    chain.append("test", ANN)

    assert line.startswith("ok    a  10 valid entries, head 10:")
    assert cli("verify", "--expect", head).startswith("ok    a  11 valid entries")
    assert cli("verify", "--from", head).startswith("ok    a  1 valid entry")
    fake = "12:" + hashlib.sha256().hexdigest()
    assert "entry 12 fails verification: missing" in cli("verify", "--expect", fake, status=1)


def test_verify_names_the_first_entry_that_does_not_fit(
    whole: Store, chain: Audit, cli: Cli
) -> None:
    whole.client.xdel(KEYS.audit, "5-0", "7-0")

    assert "fail  a  entry 5" in cli("verify", status=1)
    assert json.loads(cli("verify", "-o", "json", status=1))["a"]["misfit"]["why"] == "missing"


def test_verify_all_checks_the_deployment_too(whole: Store, chain: Audit, cli: Cli) -> None:
    whole.freezes.freeze("incident", actor=ANN)
    assert [line.split()[:2] for line in cli("verify", "--all").splitlines()] == [
        ["ok", "deployment"],
        ["ok", "a"],
    ]
    whole.client.delete(Keys("*").audit)

    assert "fail  deployment  entry 1" in cli("verify", "--all", status=1)
    assert "deployment.frozen" not in cli("show", "--deployment")


def test_export_writes_every_entry_as_a_line_of_json(chain: Audit, cli: Cli) -> None:
    chain.append("agent.paused", ANN, note="a\u2028b\x9b2J\u202e")
    lines = [json.loads(line) for line in cli("export").splitlines()]

    assert [line["seq"] for line in lines] == list(range(1, 12))
    assert lines[-1]["note"] == "a\u2028b\x9b2J\u202e"
    assert cli("export", "--since", "2999-01-01") == ""


@pytest.mark.parametrize("text", ["5", "5:xyz"])
def test_an_invalid_head_is_a_usage_error(cli: Cli, text: str) -> None:
    cli("verify", "--expect", text, status=2)


def test_follow_prints_what_comes_and_ends_with_ctrl_c(
    chain: Audit, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Audit.wait
    rounds = iter([["later"], []])

    def next_round(self: Audit, after: int, seconds: float) -> Any:
        kinds = next(rounds, None)
        if kinds is None:
            raise KeyboardInterrupt
        for kind in kinds:
            chain.append(kind, ANN)
        return read(self, after, 0.01)

    monkeypatch.setattr(Audit, "wait", next_round)
    lines = cli("show", "--limit", "1", "--follow").splitlines()

    assert [line.split()[2] for line in lines] == ["#10", "#11"]


def fields_of(link: Link) -> dict[str, str]:
    """A link as it lies in Redis."""
    return dict(zip(["seq", "at", "body", "prev", "by", "hash"], link.arguments(), strict=True))
