"""The archive: copied once, found by any filter, one history with Redis."""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import fakeredis
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from archive_kit import Archive, PostgreSQL, list_numbers, read_archive_status, sqlite
from boyd import Agent, Procedure, ProcedureStep
from boyd.errors import ArchiveRefused, ArchiveUnavailable, ConfigError, TooManyMatches
from boyd.export import work_follower
from boyd.export.archive import copier
from boyd.export.archive.access import ArchiveAccess
from boyd.export.archive.copier import Archiving, Copier
from boyd.export.archive.database import NEWEST, Database, metadata
from boyd.export.archive.merged_history import MergedHistory
from boyd.export.archive.search import ArchiveReader
from boyd.export.archive.writer import ArchiveWriter
from boyd.export.work_follower import ANNOUNCE
from boyd.health.checks import examine
from boyd.health.reader import read_health
from boyd.models import Actor, Autonomy, EffectChecks, utc_now
from boyd.models.loop import ArchiveStatus, HistoryFilter
from boyd.plugin import Strategy
from boyd.store.ended_work import announce_archive
from boyd.store.executions import ExecutionFilter
from boyd.store.hashes import dump_cursor
from boyd.testing import Lab
from harness import wait_until
from kit import (
    Recorder,
    agent,
    choice,
    chooses,
    execution_request,
    overdue,
    plugin,
    reads,
    seen,
    sees,
)

#: Each filter with the iterations of `lab` that it finds, newest first.
FILTERS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [6, 5, 4, 3, 2, 1]),
    ({"host": "here"}, [6, 5, 4, 3, 2, 1]),
    ({"host": "there"}, []),
    ({"action": "p:do"}, [5, 3, 1]),
    ({"action": "no-op"}, [6, 4, 2]),
    ({"action": "p:do", "host": "here"}, [5, 3, 1]),
    ({"action": "p:do", "host": "there"}, []),
    ({"action": "no-op", "host": "here"}, []),
    ({"source": "disk"}, [6, 5, 4, 3, 2, 1]),
    ({"source": "p:eyes"}, [6, 5, 4, 3, 2, 1]),
    ({"trigger": "odd"}, [5, 3, 1]),
    ({"trigger": "odd", "action": "no-op"}, []),
    ({"status": "ok"}, [6, 5, 3, 2, 1]),
    ({"status": "failed"}, [4]),
    ({"q": "DISK ful"}, [6, 5, 4, 3, 2, 1]),
    ({"q": "boom"}, [5, 3, 1]),
    ({"q": "bo"}, []),
    ({"q": "disk empty"}, []),
    ({"q": "boom", "status": "ok", "host": "here"}, [5, 3, 1]),
]


def sometimes() -> Strategy:
    """A strategy that acts in every other iteration."""
    turns = iter(range(10_000))
    return Strategy(name="turns", decide=lambda: choice() if next(turns) % 2 == 0 else None)


def build(client: Any = None) -> Lab:
    eyes, brain = sees("eyes", seen("disk")), reads("brain", "The disk is full")
    act = Recorder(error=RuntimeError("boom")).action()
    return Lab(agent(eyes, brain, sometimes(), act), client=client)


@pytest.fixture
def lab() -> Lab:
    """An agent that has failed to act in three of six iterations; another one has failed."""
    new_lab = build()
    for number in range(6):
        new_lab.run("even" if number % 2 else "odd")
    new_lab.client.hset("boyd:{test}:iteration:4", "success", 0)
    return new_lab


@pytest.fixture
def archive(lab: Lab, archive_url: str) -> Iterator[Archive]:
    """An empty archive for it."""
    new_archive = Archive(archive_url, lab.whole)
    yield new_archive
    new_archive.close()


@pytest.fixture
def open_archive(tmp_path: Path) -> Iterator[Callable[..., Archive]]:
    """Opens archives in one SQLite file; all are closed at the end."""
    with ExitStack() as stack:
        yield lambda *arguments, **more: stack.enter_context(
            closing(Archive(sqlite(tmp_path), *arguments, **more))
        )


def test_records_are_copied_once(lab: Lab, archive: Archive) -> None:
    assert archive.copy() > 6
    assert archive.copy() == archive.copy(completely=True) == 0
    lab.run()

    assert archive.copy() >= 1
    assert archive.count("iteration") == 7


def test_iterations_executions_and_audit_are_kept_as_they_were(lab: Lab, archive: Archive) -> None:
    results = [lab.store.history.get(number) for number in range(1, 7)]
    executions = lab.store.executions.page().executions
    trail = lab.store.audit_trail
    archive.copy()
    entries = trail.page(500).entries
    lab.client.flushall()

    assert [archive.past.get(str(number)) for number in range(1, 7)] == results
    assert archive.work.executions(50).executions == executions
    assert archive.work.execution(executions[0].id) is not None
    assert len(entries) == archive.count("audit")


def test_a_name_that_no_record_can_have_is_not_found(archive: Archive) -> None:
    archive.copy()

    assert archive.work.execution("call:\0") is None
    assert archive.work.approval("\0") is None
    assert archive.work.run("a\0b") is None


def test_a_filter_finds_the_same_in_redis_in_the_archive_and_in_both(
    lab: Lab, archive: Archive
) -> None:
    def finds_all(past: MergedHistory, limit: int) -> None:
        for query, expected in FILTERS:
            assert list_numbers(past, limit, **query) == expected, query

    finds_all(MergedHistory(lab.store, ArchiveAccess(None)), 2)
    finds_all(archive.past, 2)
    archive.copy()
    finds_all(archive.past, 2)
    lab.client.flushall()
    finds_all(archive.past, 2)
    finds_all(archive.past, 1)


def test_pages_have_neither_gaps_nor_doubles_while_the_archive_lags(
    lab: Lab, archive: Archive
) -> None:
    archive.copy()
    for key in lab.client.zrange("boyd:{test}:history", 0, 2):  # Redis forgets the oldest
        lab.client.zrem("boyd:{test}:history", key)
        lab.client.delete(f"boyd:{{test}}:iteration:{key}")
    lab.run()
    lab.run()

    for limit in (1, 2, 3, 50):
        for query in ({}, {"q": "disk"}):
            assert list_numbers(archive.past, limit, **query) == [8, 7, 6, 5, 4, 3, 2, 1]


def test_a_period_is_from_its_start_until_before_its_end(lab: Lab, archive: Archive) -> None:
    archive.copy()
    ends = {
        iteration.iteration: iteration.ended_at for iteration in archive.past.page(50).iterations
    }
    for _ in range(2):
        assert list_numbers(archive.past, since=ends[3], until=ends[5]) == [4, 3]
        assert list_numbers(archive.past, since=ends[6] + timedelta(seconds=1)) == []
        lab.client.flushall()


def test_a_place_later_than_any_record_is_before_the_newest(lab: Lab, archive: Archive) -> None:
    archive.copy()
    lab.client.flushall()
    every = list_numbers(archive.past)
    assert list_numbers(archive.past, until=datetime(9999, 12, 31, tzinfo=UTC)) == every
    assert archive.past.page(50, f"{'9' * 16}-{'9' * 19}").iterations
    assert archive.work.executions(50, f"{dump_cursor(None)}.{'9' * 19}").executions


def test_iterations_before_a_number_are_those_that_ended_before_it(
    lab: Lab, archive: Archive
) -> None:
    archive.copy()
    for _ in range(2):
        for query in (HistoryFilter(), HistoryFilter(q="disk")):
            page = archive.past.page(2, "4", query)
            assert [iteration.iteration for iteration in page.iterations] == [3, 2]
            assert archive.past.page(2, "1", query).iterations == []
        lab.client.flushall()


def test_numbers_that_begin_again_mean_the_newest_and_all_are_listed(
    lab: Lab, archive: Archive
) -> None:
    archive.copy()
    first = archive.past.get("1")
    assert first is not None
    lab.client.flushall()
    later = build(lab.client)
    later.run()
    archive.copy()
    newest = archive.past.get("1")

    assert newest is not None
    assert newest.id != first.id
    assert archive.past.get(first.id.partition(":")[2]) == first
    assert (
        list_numbers(archive.past) == list_numbers(archive.past, q="disk") == [1, 6, 5, 4, 3, 2, 1]
    )
    assert list_numbers(archive.past, limit=1) == [1, 6, 5, 4, 3, 2, 1]
    assert archive.past.get("7") is None


def test_an_iteration_that_came_before_the_place_is_found_by_a_complete_look(
    lab: Lab, archive: Archive
) -> None:
    archive.copy()
    archive.writer.write("test", "iteration", [], repr(2.0**41))  # a clock was set back
    lab.run()

    archive.copy()
    assert archive.count("iteration") == 6
    assert archive.copy(completely=True) >= 1
    assert archive.count("iteration") == 7


def test_an_approval_that_is_executed_later_is_brought_up_to_date(
    open_archive: Callable[..., Archive],
) -> None:
    act = Recorder().action(autonomy=Autonomy(mode="approval-required"))
    lab = Lab(agent(sees("eyes", seen()), chooses(choice()), act))
    lab.run()
    archive = open_archive(lab.whole)
    archive.copy()
    assert archive.count("approval") == 0
    [item] = lab.store.approvals.page(5).pending

    lab.resolver.answer(item.id, "approved", Actor(principal="ann", person=True))
    archive.copy()
    assert archive.count("approval") == 1
    lab.deliver()
    archive.copy()
    lab.client.flushall()

    [approval] = archive.work.approvals(50).history
    assert approval == archive.work.approval(item.id)
    assert approval.execution is not None
    assert (approval.status, approval.execution.state) == ("approved", "succeeded")
    [done] = archive.work.executions(
        50, filter=ExecutionFilter(action="p:do", state="succeeded")
    ).executions
    assert done.id == f"approval:{item.id}"
    assert archive.work.executions(50, filter=ExecutionFilter(state="running")).executions == []


def test_a_verdict_and_a_notice_of_what_has_ended_are_archived_with_their_events(
    open_archive: Callable[..., Archive],
) -> None:
    do = Recorder().action(
        autonomy=Autonomy(mode="approval-required"),
        verify=lambda result: "effective",
        checks=EffectChecks(within=60),
        concurrency=2,
    )
    parts = (sees("eyes", seen()), chooses(choice()), do)
    lab = Lab(Agent("test", plugins=[plugin(*parts, on_approval=lambda stage: None)]))
    for _ in range(2):  # the one that came last is compared anyway
        lab.run()
        [item] = lab.store.approvals.page(5).pending
        lab.resolver.answer(item.id, "approved", Actor(principal="ann", person=True))
        lab.deliver()
    item = lab.store.approvals.page(5).history[-1]
    archive = open_archive(lab.whole)
    archive.copy()
    last = lab.store.events.newest()
    overdue(lab, f"verify:approval:{item.id}")
    lab.deliver()
    archive.copier.copy("test", events=lab.store.events.after(last))
    lab.client.flushall()

    entry, approval = archive.work.execution(f"approval:{item.id}"), archive.work.approval(item.id)
    assert entry is not None
    assert entry.verification is not None
    assert entry.verification.verdict == "effective"
    assert approval is not None
    assert approval.notifications[-1].stage == "verified"


def test_an_approved_procedure_is_brought_up_to_date_when_it_has_ended(
    open_archive: Callable[..., Archive],
) -> None:
    fails = Recorder(error=RuntimeError("boom")).action()
    asks = Autonomy(mode="approval-required")
    steps = [ProcedureStep(id="only", action="p:do")]
    procedure = Procedure(name="whole", steps=steps, autonomy=asks)
    lab = Lab(agent(sees("eyes", seen()), chooses(choice("p:whole")), fails, procedure))
    lab.run()
    [item] = lab.store.approvals.page(5).pending
    lab.resolver.answer(item.id, "approved", Actor(principal="ann", person=True))
    lab.deliver()
    archive = open_archive(lab.whole)
    archive.copy()
    started = archive.work.approval(item.id)
    assert started is not None
    assert started.execution is not None
    assert started.execution.state == "running"

    while not lab.store.procedures.all()[0].has_ended:
        overdue(lab, f"procedure:approval:{item.id}")
    archive.copy()
    lab.client.flushall()
    approval = archive.work.approval(item.id)
    assert approval is not None
    assert approval.execution is not None
    assert approval.execution.state == "failed"


def test_an_execution_that_redis_has_lost_while_it_ran_has_an_unknown_outcome(
    lab: Lab, archive: Archive
) -> None:
    ledger = lab.store.executions
    ledger.claim(execution_request("call:1"), "token")
    archive.copy()
    assert ledger.page().executions[0].state == "running"
    lab.client.flushall()
    archive.copy()

    assert archive.work.executions(1).executions[0].state == "unknown"
    assert archive.writer.open_names("test", "execution") == []


def test_runs_are_found_by_their_filters_after_redis_has_forgotten_them(
    lab: Lab, archive: Archive
) -> None:
    urgent = lab.submit("look", priority="high").run.id
    lab.submit("see")
    lab.deliver()
    archive.copy()
    before = archive.work.runs(1)
    lab.client.flushall()

    assert before.next_cursor is not None
    assert [run.id for run in archive.work.runs(50, priority="high").runs] == [urgent]
    assert archive.work.runs(50, priority="low").runs == []
    assert {run.title for run in archive.work.runs(50).runs} == {"look", "see"}
    assert archive.work.run(urgent) is not None


def test_a_list_that_redis_has_whole_has_no_doubles_from_the_archive(
    lab: Lab, archive: Archive
) -> None:
    for number in range(5):
        lab.submit(f"run {number}")
        lab.deliver()
    archive.copy()
    titles: list[str] = []
    cursor = None
    for _ in range(20):
        page = archive.work.runs(2, cursor)
        titles += [run.title for run in page.runs]
        cursor = page.next_cursor
        if cursor is None:
            break

    assert titles == [f"run {number}" for number in range(4, -1, -1)]


def test_audit_entries_of_another_chain_are_copied_beside_the_first_ones(
    lab: Lab, archive: Archive
) -> None:
    archive.copy()
    before = archive.count("audit")
    lab.client.flushall()
    build(lab.client).run()
    archive.copy()
    after = archive.count("audit")

    assert 0 < before < after
    assert archive.copy() == 0


def test_records_beyond_the_retention_are_purged_and_not_copied_again(
    lab: Lab, open_archive: Callable[..., Archive]
) -> None:
    archive = open_archive(lab.whole)
    archive.copy()
    assert archive.copier.purge() == 0
    short = open_archive(lab.whole, keep=1e-6)

    assert short.copier.purge() > 6
    assert short.copy(completely=True) == 0
    with short.database.begin() as connection:
        for table in ("records", "bodies", "terms", "postings"):
            assert connection.scalar(text(f"SELECT count(*) FROM {table}")) == 0


def test_old_records_are_purged_although_nothing_can_be_copied(
    lab: Lab, open_archive: Callable[..., Archive], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = open_archive(lab.whole)
    archive.copy()
    full = Mock(side_effect=ArchiveUnavailable("the archive does not answer: it is full"))
    monkeypatch.setattr(Copier, "copy_deployment", full)
    archiving = Archiving(lab.whole, lab.whole, archive.database, keep=1e-6)
    thread = threading.Thread(target=archiving.run)
    thread.start()
    try:
        wait_until(lambda: full.called)
    finally:
        archiving.stop()
        thread.join()

    assert archive.count("iteration") == 0


def test_without_its_database_history_is_what_redis_has_and_says_so(
    lab: Lab, tmp_path: Path
) -> None:
    (tmp_path / "archive.db").mkdir()
    past = MergedHistory(lab.store, ArchiveAccess(sqlite(tmp_path)))
    page = past.page(3, None, HistoryFilter(q="boom"))

    assert [iteration.iteration for iteration in page.iterations] == [5, 3, 1]
    assert page.missing
    assert past.page(3).missing is None
    assert past.page(50).missing
    assert len(past.page(50).iterations) == 6
    assert past.get("6") is not None
    with pytest.raises(ArchiveUnavailable):
        past.get("99")


def test_migrations_make_the_tables_that_the_archive_uses_however_often_they_run(
    archive: Archive,
) -> None:
    archive.database.upgrade()
    with archive.database.begin() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_a_statement_that_is_refused_is_no_outage(lab: Lab, archive: Archive) -> None:
    archive.copy()
    access = archive.access()

    def refuse_writes(reader: ArchiveReader) -> None:
        with reader._database.begin() as connection:
            connection.execute(text("INSERT INTO bodies (key, body) VALUES (1, NULL)"))

    with pytest.raises(ArchiveRefused, match="refused a statement"):
        access.ask(refuse_writes)
    assert access.ask(lambda reader: reader.by_number("test", 3)) is not None


@pytest.mark.parametrize("by", ["removed", "replaced"])
def test_an_archive_whose_file_is_gone_says_so_and_begins_another(
    lab: Lab, tmp_path: Path, by: str
) -> None:
    url, file = sqlite(tmp_path), tmp_path / "archive.db"
    archive, others = Archive(url, lab.whole), ArchiveAccess(url)
    archive.copy()
    assert others.ask(lambda reader: reader.by_number("test", 3)) is not None
    file.rename(tmp_path / "moved.db")
    if by == "replaced":
        file.touch()
    [failure, *_] = follow(Archiving(lab.whole, lab.whole, archive.database, 1e9))

    assert "was removed or replaced" in str(failure)
    assert others.ask(lambda reader: reader.by_number("test", 3)) is not None
    assert file.stat().st_mode & 0o077 == 0 or by == "replaced"
    archive.close()
    others.close()


def test_a_database_that_is_emptied_gets_its_tables_again(lab: Lab, archive: Archive) -> None:
    archive.copy()
    with archive.database.begin() as connection:
        metadata.drop_all(connection)
        connection.execute(text("DROP TABLE alembic_version"))
    archiving = Archiving(lab.whole, lab.whole, archive.database, 1e9)
    archiving._upgraded = True
    follow(archiving)

    assert archive.count("iteration") == 6


def test_a_database_that_loses_connections_between_copies_is_tried_again_soon(
    lab: Lab, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([True, False, True, False, True, True])
    write = ArchiveWriter.write

    def lose_some(writer: ArchiveWriter, *values: Any) -> None:
        if next(losses, False):
            raise ArchiveUnavailable("the archive does not answer: it ended the connection")
        write(writer, *values)

    monkeypatch.setattr(copier, "BATCH", 2)
    monkeypatch.setattr(ArchiveWriter, "write", lose_some)
    archiving = Archiving(lab.whole, lab.whole, archive.database, 1e9)
    pauses: list[float] = []
    wait = archiving._stopping.wait

    def shorten(seconds: float) -> bool:
        if seconds != ANNOUNCE:
            pauses.append(seconds)
        return wait(seconds if seconds == ANNOUNCE else 0)

    monkeypatch.setattr(archiving._stopping, "wait", shorten)
    monkeypatch.setattr(work_follower, "RETRY", (10.0, 80.0))
    failures = follow(archiving)

    assert (len(failures), archive.count("iteration")) == (4, 6)
    assert [seconds for seconds in pauses if seconds >= 10] == [10, 10, 10, 20]


def test_an_archive_continues_where_it_failed_before_it_compares_everything(
    lab: Lab, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bool] = []

    def copy(_: Copier, agent_id: str, *, completely: bool, **more: Any) -> None:
        looks.append(completely)
        if len(looks) < 3:
            raise ArchiveUnavailable("the archive does not answer: it ended the connection")

    monkeypatch.setattr(work_follower, "RETRY", (0.01, 0.01))
    monkeypatch.setattr(Copier, "copy", copy)
    archiving = Archiving(lab.whole, lab.whole, archive.database, 1e9)
    thread = threading.Thread(target=archiving.run)
    thread.start()
    try:
        wait_until(lambda: len(looks) >= 4)
    finally:
        archiving.stop()
        thread.join()

    assert looks[:4] == [True, False, False, True]


def test_an_archive_that_fails_unexpectedly_says_so_and_tries_again(
    lab: Lab, archive: Archive, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors = iter([KeyError("gone"), KeyError("gone")])
    copy = Copier.copy

    def fail_twice(copier: Copier, agent_id: str, **more: Any) -> None:
        for error in errors:
            raise error
        copy(copier, agent_id, **more)

    monkeypatch.setattr(work_follower, "RETRY", (0.01, 0.01))
    monkeypatch.setattr(Copier, "copy", fail_twice)
    archiving = Archiving(lab.whole, lab.whole, archive.database, 1e9)
    failures = follow(archiving)

    assert (len(failures), archive.count("iteration")) == (2, 6)
    [record] = [entry for entry in caplog.records if entry.levelname == "ERROR"]
    assert record.getMessage().startswith("archive: an unexpected KeyError, see its log; nothing")
    assert record.exc_info


def follow(archiving: Archiving) -> list[Exception]:
    """Run it until it has copied something; the failures before."""
    failures: list[Exception] = []
    record = archiving._record_failure

    def note(error: Exception) -> None:
        failures.append(error)
        record(error)

    archiving._record_failure = note  # type: ignore[method-assign]
    thread = threading.Thread(target=archiving.run)
    thread.start()
    try:
        wait_until(lambda: archiving._status.copied_at)
    finally:
        archiving.stop()
        thread.join()
    return failures


def test_a_damaged_record_is_refused_and_hides_no_other(lab: Lab, archive: Archive) -> None:
    archive.copy()
    with archive.database.begin() as connection:
        connection.execute(
            text(
                "UPDATE bodies SET body = :body WHERE key ="
                " (SELECT key FROM records WHERE kind = 'iteration' ORDER BY key LIMIT 1)"
            ),
            {"body": b"damaged"},
        )
    lab.client.flushall()
    past = archive.past

    with pytest.raises(ArchiveRefused, match="a record of the archive is damaged"):
        past.get("1")
    assert past.get("2") is not None


@pytest.mark.long
def test_a_database_that_knows_no_encoding_keeps_every_text(
    lab: Lab, postgresql_server: PostgreSQL
) -> None:
    archive = Archive(postgresql_server.create("SQL_ASCII"), lab.whole)
    id = lab.submit("Prüfe 日本 💥").run.id
    lab.deliver()
    archive.copy()
    lab.client.flushall()

    result = archive.work.run(id)
    assert result is not None
    assert result.title == "Prüfe 日本 💥"
    archive.close()


@pytest.mark.long
def test_a_database_that_cannot_hold_every_text_is_refused_before_it_is_used(
    postgresql_server: PostgreSQL,
) -> None:
    database = Database(postgresql_server.create("LATIN1"), writes=True)

    with pytest.raises(ArchiveUnavailable, match="encoding LATIN1, which cannot hold every text"):
        database.upgrade()
    database.close()


def test_an_iteration_that_has_never_been_is_in_no_archive(archive: Archive) -> None:
    archive.copy()

    assert archive.past.get("99999") is None


def test_a_new_database_has_the_version_by_which_an_archive_knows_that_it_is_current(
    archive: Archive,
) -> None:
    assert archive.database.version() == NEWEST


def test_a_database_of_a_newer_release_is_left_alone(archive: Archive) -> None:
    with archive.database.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'later'"))

    with pytest.raises(ArchiveUnavailable, match="a newer release"):
        archive.database.upgrade()


@pytest.mark.parametrize("url", ["mysql://host/name", "sqlite://", "nonsense", "redis://x"])
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="archive_url"):
        ArchiveAccess(url).ask(lambda reader: reader.newest("test", "run"))


def test_a_beginning_of_too_many_words_is_refused(lab: Lab, archive: Archive) -> None:
    archive.copy()
    words = [f"word{number}" for number in range(300)]
    with archive.database.begin() as connection:
        for word in words:
            line = f"test\x1fiteration\x1fword\x1f{word}"
            connection.execute(text("INSERT INTO terms (term) VALUES (:t)"), {"t": line})

    with pytest.raises(TooManyMatches, match="'word'"):
        archive.past.page(5, None, HistoryFilter(q="word"))


def test_a_record_that_cannot_be_read_is_reported_once_and_hides_no_other(
    lab: Lab, archive: Archive, caplog: pytest.LogCaptureFixture
) -> None:
    lab.client.hset("boyd:{test}:iteration:3", "decision", "{")
    archive.copy()
    archive.copy(completely=True)

    assert archive.count("iteration") == 5
    assert caplog.text.count("cannot be read") == 1


def test_every_statement_of_a_search_uses_an_index(
    lab: Lab, open_archive: Callable[..., Archive], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy import event

    archive = open_archive(lab.whole)
    archive.copy()
    statements: list[tuple[str, Any]] = []
    engine = archive.database._engine
    event.listen(
        engine, "before_cursor_execute", lambda *call: statements.append((call[2], call[3]))
    )
    reader = ArchiveReader(archive.database)
    monkeypatch.setattr("boyd.export.archive.access.ArchiveAccess.ask", lambda _, ask: ask(reader))
    for query, _ in FILTERS:
        archive.past.page(5, None, HistoryFilter(**query, since=utc_now() - timedelta(days=1)))
    archive.past.get("3")
    plans = archive.plans(
        [statement for statement in statements if statement[0].startswith("SELECT")]
    )

    assert len(plans) > len(FILTERS)
    tables = ("records", "terms", "postings", "bodies")
    assert [plan for plan in plans if any(f"SCAN {table}" in plan for table in tables)] == []


def status(**fields: Any) -> ArchiveStatus:
    return ArchiveStatus(**{"name": "a", "at": utc_now(), **fields})


def test_a_process_that_works_is_not_replaced_by_one_that_does_not() -> None:
    client = fakeredis.FakeRedis(decode_responses=True)
    announce_archive(client, status(copied_at=utc_now()))
    announce_archive(client, status(name="b", down_since=utc_now(), error="no"))
    archive_status = read_archive_status(client)

    assert archive_status is not None
    assert archive_status.name == "a"


@pytest.mark.parametrize(
    ("fields", "level", "words"),
    [
        ({"copied_at": 1}, "ok", "behind"),
        ({"copied_at": 540}, "warning", "behind for 9 min"),
        ({"down_since": 1, "error": "no route"}, "error", "no route"),
        ({"at": 300}, "error", "silent for 5 min"),
        ({}, "ok", "starts"),
    ],
)
def test_the_doctor_tells_how_the_archive_is(
    fields: dict[str, Any], level: str, words: str
) -> None:
    client = fakeredis.FakeRedis(decode_responses=True)
    ages = {name: age for name, age in fields.items() if name != "error"}
    times = {name: utc_now() - timedelta(seconds=age) for name, age in ages.items()}
    announce_archive(client, status(**fields | times))
    [finding] = [f for f in examine(read_health(client)) if f.subject == "archive"]

    assert finding.level == level
    assert words in finding.text(utc_now())


def test_the_doctor_says_since_when_the_archive_has_been_down() -> None:
    client = fakeredis.FakeRedis(decode_responses=True)
    since = utc_now() - timedelta(minutes=3)
    announce_archive(client, status(down_since=since, error="a silent for 3 min"))
    [finding] = [f for f in examine(read_health(client)) if f.subject == "archive"]

    assert (finding.what, finding.since, finding.detail) == ("down", since, "a silent for 3 min")
    assert finding.text(since + timedelta(minutes=9)) == "down for 9 min: a silent for 3 min"


def test_an_archive_that_is_given_up_as_the_guide_says_is_no_error() -> None:
    client = fakeredis.FakeRedis(decode_responses=True)
    announce_archive(client, status(at=utc_now() - timedelta(minutes=5)))
    guide = Path(__file__).parents[3] / "docs" / "operations.md"
    [key] = re.findall(r"admin del '(.+?)'", guide.read_text("utf-8"))
    client.delete(key)
    [finding] = [f for f in examine(read_health(client)) if f.subject == "archive"]

    assert finding.level == "ok"


def test_without_an_archive_the_doctor_says_so() -> None:
    client = fakeredis.FakeRedis(decode_responses=True)
    [finding] = [f for f in examine(read_health(client)) if f.subject == "archive"]

    assert (finding.level, "none runs" in finding.what) == ("ok", True)


@pytest.mark.parametrize("first", ["writer", "reader"])
def test_the_file_of_a_new_archive_is_for_its_owner_only(tmp_path: Path, first: str) -> None:
    path, before = tmp_path / "archive.db", os.umask(0o022)
    try:
        database = Database(f"sqlite:///{path}", writes=True)
        if first == "reader":
            with pytest.raises(ArchiveUnavailable):
                ArchiveReader(Database(f"sqlite:///{path}")).newest("test", "iteration")
        database.upgrade()
        with database.begin():
            modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
        database.close()
    finally:
        os.umask(before)

    assert modes == {0o600}
