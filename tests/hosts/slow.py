"""A slow line: a relay that holds every byte back for a while, in both directions.

python -m hosts.slow LISTEN_PORT TARGET_HOST TARGET_PORT SECONDS
"""

from __future__ import annotations

import asyncio
import sys


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
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
            writer.write(piece)
            await writer.drain()

    delivering = asyncio.create_task(deliver())
    try:
        while piece := await reader.read(65_536):
            pieces.put_nowait((loop.time() + delay, piece))
    except ConnectionError:
        pass
    pieces.put_nowait((loop.time(), b""))
    await delivering


async def relay(port: int, host: str, target: int, delay: float) -> None:
    """Listen on *port* of this host, and carry to *target* on *host*."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, target)
        await asyncio.gather(
            _carry(reader, back, delay), _carry(there, writer, delay), return_exceptions=True
        )

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(relay(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
