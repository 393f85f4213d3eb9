"""Each list in order of time has one order, also of what happened within a millisecond."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakeredis import _helpers
from fakeredis.commands_mixins import server_mixin
from fakeredis.model import _stream

from api_kit import Site
from archive_kit import Archive, list_numbers, sqlite
from boyd.export.archive.access import ArchiveAccess
from boyd.export.archive.merged_history import MergedHistory
from boyd.export.archive.merged_work import MergedAudit, MergedWork
from boyd.export.archive.search import ArchiveReader
from boyd.models import Actor, Decision, Proposal, RunRequest
from boyd.models.investigation import InvestigationRequest
from boyd.models.loop import HistoryFilter
from boyd.replay.recordings import KeptIterations
from boyd.store import ItemAnswer, Retention, connect
from boyd.store.approvals import NO_DEADLINE
from boyd.testing import TESTER, Lab
from kit import LAX, agent, execution_request, reads, seen, sees
from lua_scripts import FOLDER

#: The one millisecond in which all of it happens, in seconds.
MOMENT = 1_764_000_000.123
#: Records of a kind in most tests, and in those that take long.
SIZE, LARGE = 60, 1000
KEEPS_ALL = Retention(
    ttl=None, max_count=10_000, runs_max_count=10_000, iterations_max_count=10_000
)


@pytest.fixture(autouse=True)
def _stop_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (server_mixin, _helpers, _stream):
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: MOMENT))


@pytest.fixture
def lab() -> Lab:
    """An agent whose clock stands still."""
    return Lab(agent(sees("eyes", seen("disk")), reads("brain", "The disk is full")))


@pytest.fixture
def archive(lab: Lab, archive_url: str) -> Iterator[Archive]:
    """An empty archive for it."""
    new_archive = Archive(archive_url, lab.whole, keep=1e10)
    yield new_archive
    new_archive.close()


def limits(size: int) -> tuple[int, ...]:
    """Sizes of pages: a walk one by one takes long where there are many."""
    return (1, 7, size) if size < 100 else (50, size)


#: A page of a list after a cursor: the names of its records, and the next cursor.
PageReader = Callable[[MergedWork, int, str | None], tuple[list[str], str | None]]


@dataclass(frozen=True)
class Kind:
    """A kind of records: how *many* of them come about, in order, and how a list is paged."""

    name: str
    index: str
    fill: Callable[[Lab, int], list[str]]
    page: PageReader


def _runs(lab: Lab, count: int) -> list[str]:
    store = lab.store.runs
    ids = [
        store.submit(RunRequest(title="t", description="d"), False, TESTER).run.id
        for _ in range(count)
    ]
    # They end in another order than they came.
    for id in random.Random(1).sample(ids, count):
        store.cancel(id, TESTER, KEEPS_ALL, "over")
    return ids


def _approvals(lab: Lab, count: int) -> list[str]:
    store = lab.store.approvals
    ids = _pending(lab, count)
    for id in ids:
        store.resolve(id, ItemAnswer("denied", TESTER), LAX, KEEPS_ALL)
    return ids


def _pending(lab: Lab, count: int, retention: Retention = KEEPS_ALL) -> list[str]:
    return [lab.store.approvals.enqueue(_proposal(number), retention) for number in range(count)]


def _proposal(number: int) -> Proposal:
    decision = Decision(action="p:do", rationale="x", confidence=1.0)
    return Proposal(
        decision=decision, action_id="p:do", params={"n": number}, loop_iteration=number
    )


def _executions(lab: Lab, count: int) -> list[str]:
    # Names that sort otherwise than they come.
    ids = [f"call:{number * 7919 % count}" for number in range(count)]
    for id in ids:
        lab.store.executions.claim(execution_request(id), id)
    return ids


def _investigations(lab: Lab, count: int) -> list[str]:
    ids = []
    for _ in range(count):
        request = InvestigationRequest(question="why")
        id, _ = lab.store.investigations.ask(request, "loop", KEEPS_ALL)
        lab.client.hset(f"boyd:{{{lab.store.agent_id}}}:investigation:{id}", "status", "ended")
        ids.append(id)
    return ids


def _run_page(work: MergedWork, limit: int, cursor: str | None) -> tuple[list[str], str | None]:
    page = work.runs(limit, cursor)
    return [run.id for run in page.runs], page.next_cursor


def _page_of_source(
    work: MergedWork, limit: int, cursor: str | None
) -> tuple[list[str], str | None]:
    page = work.runs(limit, cursor, status="cancelled")
    return [run.id for run in page.runs], page.next_cursor


def _approval_page(
    work: MergedWork, limit: int, cursor: str | None
) -> tuple[list[str], str | None]:
    page = work.approvals(limit, cursor)
    return [item.id for item in page.history], page.next_cursor


def _execution_page(
    work: MergedWork, limit: int, cursor: str | None
) -> tuple[list[str], str | None]:
    page = work.executions(limit, cursor)
    return [entry.id for entry in page.executions], page.next_cursor


def _investigation_page(
    work: MergedWork, limit: int, cursor: str | None
) -> tuple[list[str], str | None]:
    page = work.investigations(limit, cursor)
    return [investigation.id for investigation in page.investigations], page.next_cursor


KINDS = [
    Kind("run", "runs", _runs, _run_page),
    Kind("run", "runs", _runs, _page_of_source),
    Kind("approval", "approvals:history", _approvals, _approval_page),
    Kind("execution", "executions", _executions, _execution_page),
    Kind("investigation", "investigations", _investigations, _investigation_page),
]


def names_by_page(work: MergedWork, page: PageReader, limit: int) -> list[str]:
    """The names of all records of a list, page by page."""
    names: list[str] = []
    cursor: str | None = None
    while True:
        some, cursor = page(work, limit, cursor)
        assert len(some) <= limit
        names += some
        if cursor is None:
            return names


def forget(lab: Lab, kind: str, index: str, names: Sequence[str]) -> None:
    """Have Redis forget records, as retention does."""
    for name in names:
        lab.client.zrem(f"boyd:{{test}}:{index}", name)
        lab.client.delete(f"boyd:{{test}}:{kind}:{name}")


def check_everywhere(kind: Kind, size: int, lab: Lab, archive: Archive) -> None:
    """Walk a list in Redis, in the archive, and while either has a random half of it."""
    newest_first = kind.fill(lab, size)[::-1]
    alone = MergedWork(lab.store, ArchiveAccess(None))
    archive.copy()

    for limit in limits(size):
        assert names_by_page(alone, kind.page, limit) == newest_first
        assert names_by_page(archive.work, kind.page, limit) == newest_first
    some = random.Random(2).sample(newest_first, size // 2)
    forget(lab, kind.name, kind.index, some)
    for limit in limits(size):
        assert names_by_page(archive.work, kind.page, limit) == newest_first
    lab.client.flushall()
    for limit in limits(size):
        assert names_by_page(archive.work, kind.page, limit) == newest_first


every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.page.__name__.strip("_"))


@pytest.mark.long
@every_kind
def test_a_list_is_in_the_same_order_in_redis_the_archive_and_both(
    kind: Kind, lab: Lab, archive: Archive
) -> None:
    check_everywhere(kind, SIZE, lab, archive)


@pytest.mark.long
@every_kind
def test_a_thousand_records_of_one_millisecond_are_in_one_order(
    kind: Kind, lab: Lab, tmp_path: Path
) -> None:
    archive = Archive(sqlite(tmp_path), lab.whole, keep=1e10)
    check_everywhere(kind, LARGE, lab, archive)
    archive.close()


@every_kind
def test_records_pruned_between_pages_are_neither_skipped_nor_repeated(
    kind: Kind, lab: Lab, archive: Archive
) -> None:
    newest_first = kind.fill(lab, SIZE)[::-1]
    archive.copy()
    going = random.Random(3).sample(newest_first, SIZE)

    def forgetful(work: MergedWork, limit: int, cursor: str | None) -> tuple[list[str], str | None]:
        forget(lab, kind.name, kind.index, [going.pop() for _ in range(min(4, len(going)))])
        return kind.page(work, limit, cursor)

    assert names_by_page(archive.work, forgetful, 5) == newest_first


@pytest.mark.parametrize("ttl", [None, 3600.0])
def test_pending_approvals_are_in_the_order_of_arrival(ttl: float | None, lab: Lab) -> None:
    ids = _pending(lab, SIZE, Retention(ttl=ttl))
    approvals = lab.store.approvals
    names: list[str] = []
    cursor: str | None = None
    while True:
        page = approvals.page(7, cursor, history=False)
        names += [item.id for item in page.pending]
        cursor = page.next_cursor
        if cursor is None:
            break

    assert names == ids


def test_approvals_that_never_expire_come_last(lab: Lab) -> None:
    approvals = lab.store.approvals
    forever = approvals.enqueue(_proposal(1), Retention(ttl=None))
    century = approvals.enqueue(_proposal(2), Retention(ttl=3600.0))

    assert [item.id for item in approvals.page(5).pending] == [century, forever]


@pytest.mark.long
def test_iterations_are_in_order_both_ways(lab: Lab, archive: Archive) -> None:
    count = SIZE
    for _ in range(count):
        lab.run()
    newest_first = list(range(count, 0, -1))
    archive.copy()

    def check(access: ArchiveAccess) -> None:
        past = MergedHistory(lab.store, access)
        for limit in limits(count):
            assert list_numbers(past, limit) == newest_first
            assert list_numbers(past, limit, q="disk") == newest_first
        iterations = KeptIterations(lab.store, access, HistoryFilter(), lambda _: True)
        assert [iteration.number for iteration in iterations._kept] == newest_first[::-1]

    check(ArchiveAccess(None))
    check(archive.access())
    forget(lab, "iteration", "history", [str(number) for number in range(1, count // 2)])
    check(archive.access())
    lab.client.flushall()
    check(archive.access())


def test_audit_entries_are_in_order_both_ways(lab: Lab, archive: Archive) -> None:
    trail = lab.store.audit_trail
    for number in range(SIZE):
        trail.append("key.created", Actor(principal="ann"), note=str(number))
    archive.copy()
    oldest_first = [entry.seq for entry in trail.entries()]
    access = archive.access()

    def walk(archived: ArchiveAccess, limit: int) -> list[int]:
        numbers: list[int] = []
        cursor: str | None = None
        while True:
            page = MergedAudit(trail, "test", archived).page(limit, cursor)
            numbers += [entry.seq for entry in page.entries]
            cursor = page.next_cursor
            if cursor is None:
                return numbers

    assert len(oldest_first) == SIZE
    for limit in (7, SIZE):
        assert walk(ArchiveAccess(None), limit) == oldest_first[::-1]
    lab.client.xtrim("boyd:{test}:audit", minid=f"{SIZE // 2}-0", approximate=False)
    for limit in (7, SIZE // 2 + 1, SIZE):
        assert walk(access, limit) == oldest_first[::-1]
    lab.client.flushall()
    assert walk(access, 7) == oldest_first[::-1]


def test_events_of_one_millisecond_are_followed_in_order_from_any_of_them(lab: Lab) -> None:
    ids = _pending(lab, 30)
    everything = lab.store.events.after("0-0", 1000)
    approvals = [event.data["approval"] for event in everything if event.kind == "approval.pending"]

    assert approvals == ids
    assert [event.id for event in lab.store.events.after(everything[9].id, 1000)] == [
        event.id for event in everything[10:]
    ]


def test_the_archive_keeps_records_of_one_step_apart_without_changing_the_order(
    lab: Lab, archive: Archive
) -> None:
    """All kinds of all agents share the keys of a moment; the next moment's are left alone."""
    for kind in KINDS:
        kind.fill(lab, 30)
    archive.copy()
    reader = ArchiveReader(archive.database)
    keys: list[Any] = []
    for name in ("run", "approval", "execution", "investigation"):
        page = reader.page("test", name, 100)
        keys += [hit.key for hit in page.hits]

    assert len(keys) == len(set(keys))


#: The lists of the API, by the field with their records.
SERVED = {
    "runs": ("/runs", _runs),
    "history": ("/approvals", _approvals),
    "executions": ("/executions", _executions),
    "investigations": ("/investigations", _investigations),
}


@pytest.mark.parametrize("field", SERVED)
def test_the_api_pages_in_the_order_in_which_it_came(field: str, desk: Site) -> None:
    path, fill = SERVED[field]
    newest_first = fill(desk.lab, 30)[::-1]
    names: list[str] = []
    query = "limit=7"
    while True:
        page = desk.get(f"{path}?{query}").json
        names += [record["id"] for record in page[field]]
        if "nextCursor" not in page:
            break
        query = f"limit=7&cursor={page['nextCursor']}"

    assert names == newest_first


@pytest.mark.real
def test_a_real_server_keeps_apart_what_a_script_puts_at_one_time(redis_url: str) -> None:
    client = connect(redis_url)
    script = (FOLDER / "lib" / "put_in_order.lua").read_text()
    fill = f"{script} for n = 1, 3000 do put_in_order(KEYS[1], tonumber(ARGV[1]), tostring(n)) end"
    for base in (0.0, NO_DEADLINE):
        client.delete("index")
        client.eval(fill, 1, "index", int(MOMENT * 1000 + base))
        names = [int(name) for name in client.zrange("index", 0, -1)]
        scores = [score for _, score in client.zrange("index", 0, -1, withscores=True)]

        assert names == list(range(1, 3001))
        assert len(set(scores)) == 3000
        assert scores[-1] - scores[0] < 3
    client.close()
