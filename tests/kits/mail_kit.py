"""A real SMTP server that keeps what it receives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message

from harness import free_port


class Mailbox(Message):
    """The messages that an SMTP server has received."""

    def __init__(self, port: int) -> None:
        super().__init__(EmailMessage)
        self.mails: list[Any] = []
        self._port = port
        #: Apprise's address of `jane@example.com` on this server.
        self.address = self.address_of("jane")

    def address_of(self, name: str) -> str:
        """Apprise's address of *name* at `example.com` on this server."""
        return f"mailto://127.0.0.1:{self._port}?from=boyd@example.com&to={name}@example.com"

    def subjects(self, name: str, subject: str) -> list[str]:
        """The subjects of the mails to *name* that have *subject* in theirs."""
        mails = [mail for mail in self.mails if f"{name}@example.com" in mail["To"]]
        return [mail["Subject"] for mail in mails if subject in mail["Subject"]]

    def handle_message(self, message: Any) -> None:
        """Keep a message."""
        self.mails.append(message)


def parts_of(mail: Any) -> dict[str, str]:
    """The text of each part of a mail by its type."""
    return {
        part.get_content_type(): part.get_payload(decode=True).decode()
        for part in mail.walk()
        if not part.is_multipart()
    }


@contextmanager
def mail_server(port: int = 0) -> Iterator[Mailbox]:
    """A server on *port*, or a free one."""
    port = port or free_port()
    mailbox = Mailbox(port)
    controller = Controller(mailbox, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield mailbox
    finally:
        controller.stop()
