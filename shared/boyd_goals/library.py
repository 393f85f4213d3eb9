"""Documents that the agent has ingested from files and pages, cut into passages for searching."""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re
import stat
import threading
import uuid
import zlib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
import urllib3

from boyd.outbound.guarded_session import GuardedSession
from boyd.outbound.public_addresses import check_url
from boyd.plugin import State
from boyd.text.tokenizer import words

#: The most bytes read or written at once, and of a page also after unpacking.
MOST = 256 * 1024
#: The most names listed of a folder.
NAMES = 500

_CUT_OFF = "\n[the rest is left out]"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe would block.
_FILE_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class Files:
    """Reads and writes below some folders: neither a link nor `..` leads out of them.

    Paths are opened part by part, following no link. Every method raises a `ValueError` for a path
    outside the folders, and for a file that is not a regular one.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        """Allow paths below *roots*, which may be links themselves."""
        self._roots = [(Path(os.path.abspath(root)), os.path.realpath(root)) for root in roots]  # noqa: PTH100 - a link stays one

    def read(self, path: str) -> str:
        """The text of a file, cut at `MOST` bytes."""
        folder, name = self._folder_of(path)
        try:
            handle = os.open(name, os.O_RDONLY | _FILE_FLAGS, dir_fd=folder)
        finally:
            os.close(folder)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise ValueError(f"{path!r} is not a regular file")
            if status.st_nlink > 1:
                raise ValueError(
                    f"{path!r} has hard links, which may be outside the allowed folders"
                )
            data = _read_bytes(handle, MOST + 1)
        finally:
            os.close(handle)
        text = data[:MOST].decode("utf-8", "replace")
        return text + _CUT_OFF if len(data) > MOST else text

    def write(self, path: str, content: str) -> int:
        """Write a file atomically; returns the number of bytes. An existing file keeps its mode.

        Raises:
            ValueError: the content is too long.
        """
        data = content.encode()
        if len(data) > MOST:
            raise ValueError(f"more than {MOST} bytes")
        folder, name = self._folder_of(path)
        try:
            mode = _mode(folder, name)
            if not stat.S_ISREG(mode):
                raise ValueError(f"{path!r} is not a regular file")
            _replace(folder, name, data, stat.S_IMODE(mode) & 0o777)
        finally:
            os.close(folder)
        return len(data)

    def names(self, path: str) -> list[str]:
        """The names in a folder."""
        folder = self._walk(self._parts(path))
        try:
            names = sorted(os.listdir(folder))[:NAMES]  # noqa: PTH208 - it is a descriptor
        finally:
            os.close(folder)
        return [os.fsencode(name).decode("utf-8", "replace") for name in names]

    def allows(self, path: str) -> bool:
        """True if a path is below one of the folders; raises nothing."""
        try:
            self._parts(path)
        except ValueError:
            return False
        return True

    def _folder_of(self, path: str) -> tuple[int, str]:
        root, *parts = self._parts(path)
        if not parts:
            raise ValueError(f"{path!r} is a folder")
        return self._walk([root, *parts[:-1]]), parts[-1]

    def _parts(self, path: str) -> list[str]:
        """The root of a path, and the parts below it."""
        if not self._roots:
            raise ValueError("no folder is allowed: set the option `roots`")
        if "\0" in path:
            raise ValueError("a path must not contain a null character")
        target = Path(path)
        whole = target if target.is_absolute() else Path(self._roots[0][1]) / target
        if ".." in whole.parts:
            raise ValueError(f"{path!r} must not contain `..`")
        for configured, real in self._roots:
            for root in (configured, Path(real)):
                if whole.is_relative_to(root):
                    return [real, *whole.relative_to(root).parts]
        raise ValueError(f"{path!r} is in none of the allowed folders")

    def _walk(self, parts: Sequence[str]) -> int:
        handle = os.open(parts[0], _FOLDER_FLAGS)
        for part in parts[1:]:
            try:
                following = os.open(part, _FOLDER_FLAGS, dir_fd=handle)
            finally:
                os.close(handle)
            handle = following
        return handle


def _read_bytes(handle: int, most: int) -> bytes:
    data = b""
    while len(data) < most and (chunk := os.read(handle, most - len(data))):
        data += chunk
    return data


def _mode(folder: int, name: str) -> int:
    """The mode of an existing file, otherwise that of a new one."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return stat.S_IFREG | 0o644


def _replace(folder: int, name: str, data: bytes, mode: int) -> None:
    draft = f".boyd-{uuid.uuid4().hex}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE_FLAGS
    handle = os.open(draft, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(handle, mode)
            os.fsync(handle)
        os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise


# --- Pages ---------------------------------------------------------------------------------------

# Codecs that are very slow, or produce characters that cannot be stored.
_BAD_CHARSETS = {"idna", "punycode", "utf-7", "unicode_escape", "raw-unicode-escape", "undefined"}
# A server that says nothing for the whole time; one that says little at a time is cut off.
_TIMEOUTS = (requests.Timeout, urllib3.exceptions.TimeoutError)


@dataclass(frozen=True)
class SourcePage:
    """A response to a GET; `location` is the target of a redirect."""

    status: int
    reason: str
    location: str | None
    text: str

    @property
    def full_text(self) -> str:
        """The status, the location and the text."""
        moved = f"\nLocation: {self.location}" if self.location else ""
        return f"{self.status} {self.reason}{moved}\n\n{self.text}"


def fetch(url: str, timeout: float, allow_private: bool) -> SourcePage:
    """Fetch a page; redirects are reported and not followed.

    The *timeout* in seconds covers everything except name resolution.

    Raises:
        ValueError: the address is not a web address or not allowed.
        OSError: there was no answer in time, or an error.
    """
    refused = check_url(url, allow_private=allow_private)
    if refused:
        raise ValueError(f"{url!r}: {refused}")
    session = GuardedSession(allow_private=allow_private, timeout=timeout)
    timed_out = threading.Event()

    def cut() -> None:
        timed_out.set()
        session.line.cut()

    limit = threading.Timer(timeout, cut)
    limit.daemon = True
    limit.start()
    try:
        page = _get(session, url)
    except (requests.RequestException, urllib3.exceptions.HTTPError, zlib.error) as error:
        is_late = timed_out.is_set() or isinstance(error, _TIMEOUTS)
        reason = f"no answer within {timeout:g} s" if is_late else str(error)
        raise OSError(f"{url} could not be fetched: {reason}") from None
    finally:
        limit.cancel()
        session.close()
    if timed_out.is_set():
        # A response cut off here may look complete.
        raise OSError(f"{url} could not be fetched: no answer within {timeout:g} s")
    if page.status >= 400:
        raise OSError(f"{url} could not be fetched: {page.status} {page.reason}")
    return page


def _get(session: GuardedSession, url: str) -> SourcePage:
    trusted = os.environ.get("REQUESTS_CA_BUNDLE") or True
    headers = {"Accept-Encoding": "identity"}
    with session.get(url, stream=True, headers=headers, verify=trusted) as response:
        body = response.raw.read(MOST + 1, decode_content=False)
        is_long = len(body) > MOST
        if not is_long and response.raw.length_remaining:
            raise requests.ConnectionError("the connection was lost")
        packing = response.headers.get("content-encoding", "identity").strip().lower()
        body, is_whole = _unpack(body, packing)
        is_cut = is_long or len(body) > MOST
        if not (is_whole or is_cut):
            raise requests.ConnectionError("the compressed page breaks off")
        text = body[:MOST].decode(_charset(response.encoding), "replace")
        text = text.encode("utf-8", "replace").decode()
        more = _CUT_OFF if is_cut else ""
        location = response.headers.get("location")
        return SourcePage(response.status_code, response.reason or "", location, text + more)


def _unpack(body: bytes, packing: str) -> tuple[bytes, bool]:
    """The body, unpacked up to the limit, and whether that is all of it."""
    if packing in ("", "identity") or not body:
        return body, True
    if packing not in ("gzip", "x-gzip", "deflate"):
        raise requests.exceptions.ContentDecodingError(f"unknown content encoding {packing!r}")
    unpacker = zlib.decompressobj(wbits=47)
    return unpacker.decompress(body, MOST + 1), unpacker.eof


def _charset(encoding: str | None) -> str:
    try:
        codec = codecs.lookup(encoding or "utf-8").name
        # Some codecs do not produce text, which only a trial shows.
        b"x".decode(codec, "replace")
    except (LookupError, ValueError):
        return "utf-8"
    return "utf-8" if codec in _BAD_CHARSETS else codec


#: The number of documents kept, of passages per document, and the usual length of a passage.
DOCUMENTS, PASSAGES, CHARS = 300, 200, 800
#: The number of a document's most frequent words that are indexed, and their greatest length.
ABOUT, WORD = 60, 40
#: The most bytes of all passages of a document, and of the index.
BYTES = 900_000
#: The number of documents a search reads.
SEARCHED = 8
#: Seconds that a document is kept.
KEEP = 365 * 86400.0

_INDEX = "library"
_BREAK = re.compile(r"\n\s*\n")


@dataclass(frozen=True)
class Passage:
    """A piece of a document, and the number of searched words in it."""

    title: str
    number: int
    text: str
    matches: int


@dataclass
class Library:
    """The documents of one agent, in its plugin's state."""

    _state: State

    def add(self, title: str, text: str, source: str) -> tuple[int, list[str]]:
        """Add or replace a document; returns its number of passages and its frequent words."""
        parts = passages(text)
        all_words = (word for passage in parts for word in words(passage))
        counted = Counter(word for word in all_words if len(word) <= WORD)
        about = [word for word, _ in counted.most_common(ABOUT)]
        key = _key(title)
        self._state.set(key, {"title": title, "source": source, "passages": parts}, KEEP)
        title_words = sorted(word for word in words(title) if len(word) <= WORD)
        entry = {"key": key, "title": title, "about": [*title_words, *about]}
        dropped: list[str] = []

        def add_entry(stored: Any) -> list[Any]:
            rest = [item for item in stored or [] if item["key"] != key]
            entries = [*rest, entry][-DOCUMENTS:]
            while len(entries) > 1 and _bytes(entries) > BYTES:
                entries = entries[len(entries) // 8 + 1 :]
            left = {item["key"] for item in entries}
            dropped[:] = [item["key"] for item in rest if item["key"] not in left]
            return entries

        self._state.update(_INDEX, add_entry, KEEP)
        for forgotten in dropped:
            self._state.delete(forgotten)
        return len(parts), about

    def search(self, query: str, top_k: int) -> list[Passage]:
        """The passages with most words of the query, from the documents that match best."""
        sought = words(query)
        index = self._state.get(_INDEX) or []
        scored = [(len(sought & set(entry["about"])), entry["key"]) for entry in index]
        best = sorted((pair for pair in scored if pair[0]), reverse=True)[:SEARCHED]
        documents = self._state.get_many([key for _, key in best])
        hits = [
            Passage(document["title"], number, text, len(sought & words(text)))
            for document in documents.values()
            for number, text in enumerate(document["passages"], 1)
        ]
        fitting = [passage for passage in hits if passage.matches]
        return sorted(fitting, key=lambda item: (-item.matches, item.title, item.number))[:top_k]


def passages(text: str) -> list[str]:
    """Paragraphs, with short ones joined and long ones cut."""
    parts: list[str] = []
    for paragraph in filter(None, (part.strip() for part in _BREAK.split(text))):
        if parts and len(parts[-1]) + len(paragraph) < CHARS:
            parts[-1] = f"{parts[-1]}\n\n{paragraph}"
        else:
            parts += [paragraph[at : at + CHARS] for at in range(0, len(paragraph), CHARS)]
    result, size = list[str](), 0
    for passage in parts[:PASSAGES]:
        size += _bytes(passage)
        if size > BYTES:
            break
        result.append(passage)
    return result


def _bytes(value: Any) -> int:
    """The stored size, in which a character outside ASCII takes six."""
    return len(json.dumps(value))


def _key(title: str) -> str:
    return f"library:{hashlib.sha256(title.encode()).hexdigest()[:16]}"
