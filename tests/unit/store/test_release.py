"""Which releases of Redis and Valkey are too old, and which have known holes."""

from __future__ import annotations

import pytest

from boyd.store.server.server_release import Hole, Release

VALKEY_INFO = {"server_name": "valkey", "redis_version": "7.2.4", "valkey_version": "9.1.2"}


def test_valkey_is_called_by_its_own_version() -> None:
    assert str(Release.of(VALKEY_INFO)) == "Valkey 9.1.2"
    assert str(Release.of({"redis_version": "7.4.1"})) == "Redis 7.4.1"
    assert str(Release.of({})) == "Redis of an unknown version"


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("Redis server v=6.2.14 sha=00000000:0 malloc=libc bits=64", Release("Redis", "6.2.14")),
        ("Valkey server v=9.1.2 sha=00000000:1 malloc=libc", Release("Valkey", "9.1.2")),
        ("Redis server v=8.0-rc1 sha=0", Release("Redis", "8.0-rc1")),
        ("redis-cli 6.2.14", None),
        ("Python 3.11.7", None),
        ("", None),
    ],
)
def test_the_version_line_of_a_server_is_parsed(text: str, release: Release | None) -> None:
    assert Release.from_output(text) == release


@pytest.mark.parametrize(
    ("version", "too_old"),
    [("6.2.0", False), ("6.0.16", True), ("5.0", True), ("10.0.1", False), ("", True)],
)
def test_redis_before_6_2_is_too_old(version: str, too_old: bool) -> None:
    assert Release("Redis", version).too_old is too_old


@pytest.mark.parametrize(
    ("release", "hole"),
    [
        (Release("Redis", "6.2.14"), Hole("CVE-2025-49844", "6.2.20")),
        (Release("Redis", "6.2.20"), None),
        (Release("Redis", "7.0.15"), Hole("CVE-2025-49844", None)),
        (Release("Redis", "7.4.5"), Hole("CVE-2025-49844", "7.4.6")),
        (Release("Redis", "8.2.2"), None),
        (Release("Redis", "9.0.0"), None),
        (Release("Redis", "8.0-rc1"), Hole("CVE-2025-49844", "8.0.4")),
        (Release("Valkey", "9.1.0"), Hole("CVE-2026-63639", "9.1.1")),
        (Release("Valkey", "9.1.2"), None),
    ],
)
def test_known_holes_of_a_release_are_named(release: Release, hole: Hole | None) -> None:
    assert release.hole == hole
