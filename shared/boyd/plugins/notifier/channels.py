"""The ways to send a message: a webhook, or one of the services of Apprise.

An address is a secret, so errors never contain it or a part of it.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import requests

from boyd.errors import ConfigError
from boyd.plugins.notifier.message import NotificationMessage

if TYPE_CHECKING:
    from apprise import Apprise

    from boyd.plugin.http_session import Session

#: The services that get HTML; all others get plain text, in which nothing can pose as a link.
_MAIL = ("mailto", "mailtos")
#: Characters that separate the parts of an address.
_SEPARATORS = re.compile(r"[/:@?&=,#]+")
#: The shortest part of an address that errors hide.
_SECRET = 4


class SendError(Exception):
    """A message that was not accepted; its text has no part of the address."""


def kind_of(url: str) -> str:
    """The kind of service: `webhook`, or the scheme of an Apprise URL."""
    scheme = url.partition("://")[0].lower()
    return "webhook" if scheme in ("http", "https") else scheme


def check_address(url: str) -> None:
    """Check an address without sending anything.

    Raises:
        ValueError: it is invalid, of an unknown service, or Apprise is not installed.
    """
    if "://" not in url:
        raise ValueError("must begin with https:// or the scheme of an Apprise URL")
    if kind_of(url) == "webhook":
        if not urlsplit(url).hostname:
            raise ValueError("has no host")
        return
    try:
        _service(url)
    except ConfigError as error:
        raise ValueError(str(error)) from None


def post_webhook(
    session: Session, url: str, body: dict[str, Any], headers: dict[str, str], timeout: float
) -> None:
    """Post JSON once; a redirect is a failure.

    Raises:
        SendError: it was not accepted.
    """
    try:
        answer = session.post(
            url, json=body, headers=headers, timeout=timeout, allow_redirects=False
        )
    except requests.RequestException as error:
        # The error itself would show the URL.
        raise SendError(f"the webhook failed: {type(error).__name__}") from None
    if not 200 <= answer.status_code < 300:
        raise SendError(f"the webhook answered {answer.status_code}")


def send_by_apprise(url: str, message: NotificationMessage, waits: bool) -> None:
    """Send once through Apprise; *waits* marks a message that asks for an answer.

    Raises:
        SendError: it was not accepted.
    """
    from apprise import NotifyFormat, NotifyType

    is_mail = kind_of(url) in _MAIL
    result = _service(url).notify(
        body=message.html() if is_mail else message.text(),
        title=message.title,
        body_format=NotifyFormat.HTML if is_mail else NotifyFormat.TEXT,
        notify_type=NotifyType.WARNING if waits else NotifyType.INFO,
    )
    if not result:
        said = "; ".join(entry.message for one in result.results for entry in one.logs())
        raise SendError(f"{kind_of(url)} failed: {_hidden(said, url) or result.status.name}")


def _service(url: str) -> Apprise:
    """An Apprise object for *url* alone.

    It sends in the calling thread, which has a time limit of its own: without a timeout Apprise
    starts no threads. It follows no redirects, keeps nothing on disk and sends one message, cut if
    it is too long.

    Raises:
        ConfigError: the URL is invalid, or Apprise is not installed.
    """
    # Imported only here: it is an extra, and takes a fifth of a second.
    try:
        from apprise import Apprise, AppriseAsset, OverflowMode, PersistentStoreMode
    except ImportError:
        raise ConfigError("needs Apprise: pip install 'boyd[notify]'") from None
    # It logs addresses; what went wrong is in its results.
    logger = logging.getLogger("apprise")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    asset = AppriseAsset(
        app_id="Boyd",
        app_desc="Boyd",
        app_url="",
        async_mode=False,
        http_redirects=False,
        storage_mode=PersistentStoreMode.MEMORY,
        service_timeout=0,
        allow_templates=False,
    )
    service = Apprise.instantiate(url, asset=asset)
    if service is None:
        raise ConfigError(f"is not a valid Apprise URL of the service {kind_of(url)!r}")
    service.overflow_mode = OverflowMode.TRUNCATE
    sender = Apprise(asset=asset)
    sender.add(service)
    return sender


def _hidden(text: str, url: str) -> str:
    """*text* on one line, without any part of *url*."""
    rest = url.partition("://")[2]
    parts = {part for each in (rest, unquote(rest)) for part in _SEPARATORS.split(each)}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= _SECRET:
            text = text.replace(part, "***")
    return " ".join(text.split())
