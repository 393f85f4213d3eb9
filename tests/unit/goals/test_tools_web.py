"""Pages are fetched from public addresses, in bounds of time and size."""

from __future__ import annotations

import gzip
import re
import threading
from collections.abc import Callable, Iterator

import pytest

from boyd_goals.library import MOST, SourcePage, fetch
from boyd_goals.outcome import symbols_of
from goals_kit import Mind
from http_kit import Handler, serve

Answer = Callable[[Handler], None]


class Server:
    """Answers as it is told, on this host."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.gone = threading.Event()
        self.address = ""

    def url(self, path: str, answer: Answer) -> str:
        self.answers[path] = answer
        return f"{self.address}{path}"


def read(url: str) -> SourcePage:
    """A page of a server on this host, however busy the machine is."""
    return fetch(url, 120, allow_private=True)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()

    class ServerHandler(Handler):
        def answer(self) -> None:
            try:
                server.answers[self.path](self)
            except (BrokenPipeError, ConnectionResetError):
                server.gone.set()

    with serve(ServerHandler) as server.address:
        yield server
        server.gone.set()


def saying(body: bytes, status: int = 200, **headers: str) -> Answer:
    return lambda handler: handler.reply(status, body, **headers)


def test_a_page_is_returned_with_its_status(server: Server) -> None:
    page = read(server.url("/", saying(b"whale songs")))

    assert page.full_text == "200 OK\n\nwhale songs"


def test_addresses_that_are_not_public_are_refused(server: Server) -> None:
    with pytest.raises(ValueError, match="not a public address"):
        fetch(server.url("/", saying(b"x")), 120, allow_private=False)


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://example.com/", "file:///etc/passwd", "http://", "http://[::1"),
        *("http://u:p@example.com/", "http://@example.com/", "http://localhost/"),
        *("http://169.254.169.254/", "http://0x7f000001/", "http://a b/", "http://[::1]/"),
    ],
)
def test_an_address_that_is_not_public_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(url))):
        fetch(url, 120, allow_private=False)


def test_a_name_that_leads_here_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    here = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: here)
    with pytest.raises(OSError, match="could not be fetched"):
        fetch("http://example.com/", 120, allow_private=False)


def test_of_a_long_page_the_beginning_is_read(server: Server) -> None:
    page = read(server.url("/", saying(b"x" * (MOST + 9))))

    assert page.text == "x" * MOST + "\n[the rest is left out]"


def test_a_server_without_end_is_left_in_time(server: Server) -> None:
    def dripping(handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not server.gone.wait(0.02):
            handler.wfile.write(b"x")

    with pytest.raises(OSError, match=r"no answer within 0\.3 s"):
        fetch(server.url("/", dripping), 0.3, allow_private=True)
    assert server.gone.wait(120)


def test_a_server_that_drips_headers_is_left_in_time(server: Server) -> None:
    def dripping(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not server.gone.wait(0.02):
            handler.wfile.write(b"x")

    with pytest.raises(OSError, match="no answer within"):
        fetch(server.url("/", dripping), 0.3, allow_private=True)


def test_a_server_that_says_nothing_is_left_in_time(server: Server) -> None:
    def silent(_: Handler) -> None:
        server.gone.wait(120)

    with pytest.raises(OSError, match=r"no answer within 0\.3 s"):
        fetch(server.url("/", silent), 0.3, allow_private=True)


def test_a_page_that_breaks_off_is_an_error(server: Server) -> None:
    def short(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"half")
        handler.close_connection = True

    with pytest.raises(OSError, match="could not be fetched"):
        read(server.url("/", short))


def test_nobody_listening_is_an_error(server: Server) -> None:
    with pytest.raises(OSError, match="could not be fetched"):
        read("http://127.0.0.1:1/")


def test_a_bad_status_is_an_error(server: Server) -> None:
    with pytest.raises(OSError, match="404 Not Found"):
        read(server.url("/", saying(b"whale", 404)))


def test_a_redirect_is_returned_and_not_followed(server: Server) -> None:
    url = server.url("/", saying(b"", 302, Location="http://127.0.0.1:1/x"))
    page = read(url)

    assert page.full_text.startswith("302 Found\nLocation: http://127.0.0.1:1/x")


def test_a_compressed_page_is_decompressed_up_to_the_limit(server: Server) -> None:
    bomb = gzip.compress(b"x" * (50 * MOST))
    page = read(server.url("/", saying(bomb, Content_Encoding="gzip")))

    assert len(page.text) < MOST + 50
    for body, packing in ((b"no gzip", "gzip"), (b"x", "br")):
        url = server.url("/bad", saying(body, Content_Encoding=packing))
        with pytest.raises(OSError, match="could not be fetched"):
            read(url)


def test_a_compressed_page_that_breaks_off_is_not_taken_for_whole(server: Server) -> None:
    packed = gzip.compress(b"whale songs " * 500)
    half = server.url("/", saying(packed[: len(packed) // 2], Content_Encoding="gzip"))
    with pytest.raises(OSError, match="could not be fetched"):
        read(half)


def test_a_long_page_that_hardly_compresses_is_cut_with_a_note(
    server: Server,
) -> None:
    packed = gzip.compress(b"x" * (MOST + 9), compresslevel=0)
    page = read(server.url("/", saying(packed, Content_Encoding="gzip")))

    assert page.text.endswith("x\n[the rest is left out]")


@pytest.mark.parametrize("charset", ["nonsense", "punycode", "idna", "utf-7", "zlib", "hex"])
def test_a_page_in_a_strange_charset_is_taken_as_utf_8(server: Server, charset: str) -> None:
    answer = saying("grüße".encode(), Content_Type=f"text/plain; charset={charset}")

    assert read(server.url("/", answer)).text == "grüße"


def test_a_page_can_be_ingested_and_found(server: Server) -> None:
    mind = Mind(allow_private=True)
    url = server.url("/paper", saying(b"The whale sings.\n\nThe dolphin whistles."))
    params = mind.lab.agent.host.actions["goals:content_ingest"].params
    assert params is not None
    result = mind.plugin.content_ingest(params(title="Songs", url=url), mind.ctx)
    search = mind.lab.agent.host.actions["goals:library_search"].params
    assert search is not None
    hits = mind.plugin.library_search(search(query="whistling dolphins"), mind.ctx)

    assert str(result.output).startswith("1 passage, about ")
    assert "dolphin whistles" in str(hits.output)
    assert symbols_of(result)[0] == symbols_of(hits)[0] == "Songs"
    assert "mentions" in [triple.predicate for triple in mind.facts.out("Songs")]


def test_a_redirect_is_no_text_to_ingest(server: Server) -> None:
    mind = Mind(allow_private=True)
    url = server.url("/", saying(b"moved", 301, Location="http://127.0.0.1:1/x"))
    params = mind.lab.agent.host.actions["goals:content_ingest"].params
    assert params is not None

    with pytest.raises(ValueError, match="301"):
        mind.plugin.content_ingest(params(title="Songs", url=url), mind.ctx)
    assert mind.facts.out("Songs") == []
