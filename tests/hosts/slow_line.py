"""A slow line: a relay that holds every byte back for a while, in both directions.

python -m hosts.slow_line LISTEN_PORT TARGET_HOST TARGET_PORT SECONDS
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

#: Seconds that a byte is held back; asked for each piece.
Delay = Callable[[], float]


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: Delay) -> None:
    """Write what is read, each piece *delay* seconds later, however many are on their way."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, piece = await pieces.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not piece:
                writer.close()
                return
            with suppress(ConnectionError):
                writer.write(piece)
                await writer.drain()

    delivering = asyncio.create_task(deliver())
    try:
        while piece := await reader.read(65_536):
            pieces.put_nowait((loop.time() + delay(), piece))
    except ConnectionError:
        pass
    pieces.put_nowait((loop.time(), b""))
    await delivering


async def listen(port: int, host: str, target: int, delay: Delay) -> asyncio.Server:
    """Listen on *port* of this host, and carry to *target* on *host*."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(host, target)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(
                _carry(reader, back, delay), _carry(there, writer, delay), return_exceptions=True
            )
        except asyncio.CancelledError:
            pass  # Python 3.11 complains of a connection that ends as cancelled
        finally:
            writer.close()
            back.close()

    return await asyncio.start_server(forward, "127.0.0.1", port)


class SlowLine:
    """A line to a port of this host, in a thread; as slow as it is told to be.

    Attributes:
        delay: seconds that what is said from now on takes each way.
    """

    def __init__(self, target: int) -> None:
        self.delay = 0.0
        self.port = 0
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        listening = listen(0, "127.0.0.1", self._target, lambda: self.delay)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(120)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._hang_up(), self._loop).result(120)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(120)
        self._loop.close()

    async def _hang_up(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.05)  # what was closed ends in a turn of its own


async def _main(port: int, host: str, target: int, delay: float) -> None:
    async with await listen(port, host, target, lambda: delay) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
