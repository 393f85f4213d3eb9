"""What a command wrote: its beginning and its end, however much it was."""

from __future__ import annotations

#: Room for the line that tells how much is missing.
_MARK_ROOM = 64


class Captured:
    """Keeps at most *limit* bytes, so reading gigabytes takes no memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, chunk: bytes) -> None:
        """Take what was read."""
        self.total += len(chunk)
        room = self._limit - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * self._limit:
            del self._tail[: -self._limit]

    @property
    def truncated(self) -> bool:
        """Whether something is missing."""
        return self.total > self._limit

    def text(self) -> str:
        """At most *limit* bytes of UTF-8; each byte that is not UTF-8 is a question mark."""
        if not self.truncated:
            return _decoded(self._head)
        room = self._limit - _MARK_ROOM
        head = _whole_end(bytes(self._head[: room // 2]))
        last = bytes((self._head + self._tail)[-(room - room // 2) :])
        tail = _whole_begin(last)
        omitted = self.total - len(head) - len(tail)
        return f"{_decoded(head)}\n[{omitted} bytes omitted]\n{_decoded(tail)}"


def _decoded(data: bytes | bytearray) -> str:
    # One byte for one byte: what was kept stays as long as it is.
    return data.decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode("utf-8")


def _whole_end(data: bytes) -> bytes:
    """Without a character at the end of which only a part is there."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            return data[:-back] if _length(byte) > back else data
    return data


def _whole_begin(data: bytes) -> bytes:
    """Without the rest of a character at the beginning."""
    for skipped in range(min(4, len(data))):
        if data[skipped] & 0xC0 != 0x80:
            return data[skipped:]
    return data


def _length(lead: int) -> int:
    """How many bytes the character has that begins with this one."""
    if lead >= 0xF0:
        return 4
    return 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
