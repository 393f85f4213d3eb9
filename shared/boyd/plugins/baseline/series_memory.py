"""The memory of all series: the state of the plugin, in few keys however many series there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from boyd.plugin import State
from boyd.plugins.baseline.learned_series import LearnedSeries, season_names
from boyd.plugins.baseline.learner import SeasonHour
from boyd.plugins.baseline.unusual_series import UnusualSeries

#: The keys over which series are spread: replay needs values of at most 8000 characters.
CHUNKS = 8
#: The seconds after which a series without values is forgotten, and the time to live of all keys.
FORGET, KEEP = 14 * 86_400.0, 35 * 86_400.0


class SeasonMemory:
    """Seasons: a key for each hour of the day and of the week, with all series."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._texts: dict[str, dict[str, str]] = {}
        self._changed: set[str] = set()

    def load(self, hours: Iterable[int]) -> None:
        """Read these hours since 1970, in one round trip."""
        keys = sorted({key for hour in hours for key in _keys(hour)})
        if keys:
            stored = self._state.get_many(keys)
            self._texts = {key: stored.get(key, {}) for key in keys}

    def look_up(self, series: str, hour: int) -> tuple[SeasonHour, SeasonHour]:
        """The hour of the day and that of the week."""
        day, week = _keys(hour)
        return self._hour(day, series), self._hour(week, series)

    def learn(self, series: str, hour: int, mean: float, spread: float) -> None:
        """Add one hour to both."""
        for key in _keys(hour):
            season = self._hour(key, series)
            season.learn(mean, spread)
            self._texts[key][series] = f"{season.count} {season.mean:.7g} {season.spread:.4g}"
            self._changed.add(key)

    def save(self, series: Iterable[str]) -> None:
        """Write the hours that changed, for these series."""
        names = {name for id in series for name in season_names(id)}
        for key in sorted(self._changed):
            texts = {name: text for name, text in self._texts[key].items() if name in names}
            self._state.set(key, texts, ttl=KEEP)

    def _hour(self, key: str, series: str) -> SeasonHour:
        text = self._texts[key].get(series)
        if text is None:
            return SeasonHour()
        count, mean, spread = text.split()
        return SeasonHour(int(count), float(mean), float(spread))


class SeriesMemory:
    """All series, by id, and the anomalies among them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.seasons = SeasonMemory(state)
        self.unusual: dict[str, UnusualSeries] = {}
        self._texts: dict[str, str] = {}
        self._series: dict[str, LearnedSeries] = {}
        self._stored = state.get_many(list(map(_chunk, range(CHUNKS))))
        for chunk in self._stored.values():
            self._texts |= chunk["series"]
            self.unusual |= {id: UnusualSeries(**record) for id, record in chunk["unusual"].items()}

    def __contains__(self, id: str) -> bool:
        return id in self._texts

    def __len__(self) -> int:
        return len(self._texts)

    def series(self, id: str) -> LearnedSeries:
        """A series, which is written again by `save`."""
        if id not in self._series:
            self._series[id] = LearnedSeries(id, self._texts.get(id, ""))
        return self._series[id]

    def save(self, now: float) -> None:
        """Write what changed; forget series that had no value for `FORGET`."""
        texts = self._texts | {id: series.write() for id, series in self._series.items()}
        chunks: list[dict[str, Any]] = [{"series": {}, "unusual": {}} for _ in range(CHUNKS)]
        for id, text in texts.items():
            if float(text.partition(" ")[0]) > now - FORGET:
                chunks[_place(id)]["series"][id] = text
        for id, anomaly in self.unusual.items():
            if id in chunks[_place(id)]["series"]:
                chunks[_place(id)]["unusual"][id] = asdict(anomaly)
        self.seasons.save(id for chunk in chunks for id in chunk["series"])
        for number, chunk in enumerate(chunks):
            before = self._stored.get(_chunk(number))
            if chunk != before and (before or chunk["series"]):
                self._state.set(_chunk(number), chunk, ttl=KEEP)


def _place(series: str) -> int:
    return int(series[0], 16) % CHUNKS


def _chunk(number: int) -> str:
    return f"series:{number}"


def _keys(hour: int) -> tuple[str, str]:
    return f"day:{hour % 24}", f"week:{hour % 168}"
