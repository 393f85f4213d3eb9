"""TLS in front of a server that does not speak it, with certificates made for the occasion."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import urlencode

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Certificates:
    """An authority, and what it has signed: for `localhost` and for a client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = folder / "ca.crt"
        self._openssl("req", "-x509", *_CURVE, *self._files("ca"), "-subj", "/CN=authority")
        for name in ("localhost", "client"):
            alternative = ("-addext", f"subjectAltName=DNS:{name}", "-subj", f"/CN={name}")
            signer = ("-CA", str(self.authority), "-CAkey", str(folder / "ca.key"))
            self._openssl("req", "-x509", *_CURVE, *self._files(name), *alternative, *signer)

    @property
    def query(self) -> str:
        """The query of a URL that trusts the authority and presents the client's certificate."""
        cert, key = self.pair("client")
        return urlencode({"ssl_ca_certs": self.authority, "ssl_certfile": cert, "ssl_keyfile": key})

    def pair(self, name: str) -> tuple[Path, Path]:
        """The files of a certificate and of its key."""
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"

    def _files(self, name: str) -> tuple[str, ...]:
        cert, key = self.pair(name)
        return ("-keyout", str(key), "-out", str(cert))

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)


class Relay:
    """Takes TLS connections of clients with a certificate, and passes on what they say."""

    def __init__(self, target: int, certificates: Certificates) -> None:
        self.port = 0
        self._target = target
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*certificates.pair("localhost"))
        self._context.load_verify_locations(certificates.authority)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(120)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._hang_up(), self._loop).result(120)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(120)
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._target)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(_pass(reader, inner_writer), _pass(inner_reader, writer))

    async def _hang_up(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except (ConnectionError, ssl.SSLError):
        pass  # the other side is told by the end of this one
    finally:
        writer.close()
