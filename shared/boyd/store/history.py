"""History: the iterations that have ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from boyd.models import JsonObject, LoopResult, Situation, from_ms, ms_from
from boyd.models.responses import IterationSummary
from boyd.store.hashes import ByteBudget, readable, reading
from boyd.store.iteration_record import Record, summary_of
from boyd.store.keys import Keys
from boyd.store.server.connection import Client, replies_by_type, translate_errors
from boyd.store.server.scripts import KeyedScripts

#: The fields of a record that a summary needs; `outline` has most of it, as JSON.
FIELDS = ("outline", "endedAt")
#: The fields of the loop that tell which iteration has ended last.
_NEWEST = ("iteration", "active")
#: Iterations in which the last observations of an observer are looked for.
_RECENT = 100


@dataclass(frozen=True)
class Summaries:
    """Past iterations, newest first; `before` continues the list, None at its end."""

    iterations: list[IterationSummary]
    before: int | None = None


def read_summary(fields: Mapping[str, str]) -> IterationSummary | None:
    """The summary in the `FIELDS` of a record; None when an earlier release wrote it."""
    if "outline" not in fields:
        return None
    summary = IterationSummary.from_json(fields["outline"])
    # The record has the end by the Redis server's clock.
    ended_at = from_ms(float(fields["endedAt"]))
    duration = ms_from(summary.started_at, ended_at)
    return summary.patched({"ended_at": ended_at, "duration": duration})


class History:
    """The past iterations of one agent."""

    def __init__(self, client: Client, scripts: KeyedScripts, keys: Keys, agent_id: str) -> None:
        self._client = client
        self._scripts = scripts
        self._keys = keys
        self._agent_id = agent_id

    def get(self, iteration: int) -> LoopResult | None:
        """One past iteration."""
        with translate_errors():
            fields = self._client.hgetall(self._keys.past_iteration(iteration))
        with reading(f"iteration {iteration}"):
            return self._result(fields) if fields else None

    def results(self, limit: int = 50, before: int | None = None) -> list[LoopResult]:
        """Up to *limit* past iterations in full, newest first, those *before* a number."""
        last = self._newest() if before is None else before - 1
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            for number in range(last, max(0, last - limit), -1):
                pipe.hgetall(self._keys.past_iteration(number))
            numbers = range(last, max(0, last - limit), -1)
            rows = zip(numbers, replies_by_type(pipe), strict=True)
        results = [
            readable(f"iteration {number}", self._result, fields)
            for number, fields in rows
            if fields
        ]
        return [result for result in results if result is not None]

    def summaries(self, limit: int = 50, before: int | None = None) -> Summaries:
        """Summaries of past iterations, newest first, those *before* a number.

        A `ByteBudget` bounds the list, so fewer than *limit* does not mean the end.
        """
        last = self._newest() if before is None else before - 1
        # One more shows whether the list goes on.
        numbers = range(last, max(0, last - limit - 1), -1)
        budget = ByteBudget(self._scripts)
        read = budget.read("iteration", list(map(str, numbers)), FIELDS)
        summaries: list[IterationSummary] = []
        for number, fields in zip(numbers, read, strict=False):
            summary = readable(f"iteration {number}", partial(self._summary, number), fields)
            if summary is not None:
                summaries.append(summary)
        page = summaries[:limit]
        more = len(summaries) > limit or budget.full
        return Summaries(page, page[-1].iteration if more and page else None)

    def last(self) -> Record | None:
        """The record of the iteration in flight, or of the last one that ended."""
        keys = self._keys
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            pipe.hgetall(keys.iteration)
            pipe.hget(keys.loop, "iteration")
            current, counter = pipe.execute()
            if not current and counter is not None:
                current = self._client.hgetall(keys.past_iteration(int(counter)))
        return Record(current) if current else None

    def situation(self) -> Situation | None:
        """The latest situation, of the iteration in flight or the previous one."""
        keys = self._keys
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            pipe.hget(keys.iteration, "situation")
            pipe.hmget(keys.loop, _NEWEST)
            current, newest = pipe.execute()
            if current is None:
                current = self._client.hget(
                    keys.past_iteration(_newest_number(*newest)), "situation"
                )
        with reading("the latest situation"):
            return Situation.from_json(current) if current else None

    def latest_data(self, observer: str) -> list[JsonObject]:
        """The data of the last observations of an observer, of the latest iterations only."""
        keys, last = self._keys, self._newest()
        hashes = [
            keys.iteration,
            *map(keys.past_iteration, range(last, max(0, last - _RECENT), -1)),
        ]
        with translate_errors():
            pipe = self._client.pipeline(transaction=False)
            for key in hashes:
                pipe.hget(key, "observers")
            for key, observers in zip(hashes, pipe.execute(), strict=True):
                names = json.loads(observers or "[]")
                fields = [f"seen:{index}" for index, name in enumerate(names) if name == observer]
                texts = self._client.hmget(key, fields) if fields else []
                if any(text not in (None, "[]") for text in texts):
                    reports = [json.loads(text or "[]") for text in texts]
                    return [entry["data"] for report in reports for entry in report]
        return []

    def _summary(self, number: int, fields: Mapping[str, str]) -> IterationSummary | None:
        if not fields:
            return None
        # Earlier releases stored no summary.
        result = None if "outline" in fields else self.get(number)
        return summary_of(result) if result else read_summary(fields)

    def _result(self, fields: Mapping[str, str]) -> LoopResult:
        record = Record(fields)
        return record.result(self._agent_id, record.started_at)

    def _newest(self) -> int:
        """The number of the newest iteration that has ended; 0 before the first has."""
        with translate_errors():
            return _newest_number(*self._client.hmget(self._keys.loop, _NEWEST))


def _newest_number(iteration: str | None, active: str | None) -> int:
    """The number of the newest iteration that has ended, of the loop's fields `_NEWEST`."""
    with reading("the number of the last iteration"):
        return int(iteration or 0) - (1 if active else 0)
