"""Messages of Amazon SNS: their signatures, and the confirmation of subscriptions."""

from __future__ import annotations

import base64
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from boyd.intake.request import BadIntake, read_json
from boyd.intake.sender_checks import SenderRefused
from boyd.settings.intake_settings import SnsAuth

#: Seconds for a request to Amazon.
TIMEOUT = 5.0
#: Seconds for which a certificate is kept, how many are, and seconds until one is asked for again
#: that could not be had.
KEEP, MAX_CERTIFICATES, AGAIN = 86_400.0, 16, 10.0
#: The most seconds between a message and now; SNS repeats for about an hour by default.
WINDOW = 4 * 3600.0

#: The most bytes of a message, which SNS limits to a quarter of that, and requests at a time.
MAX_BODY, MAX_FETCHES = 1_048_576, 2

_HOST = re.compile(r"sns\.([a-z0-9-]{1,40})\.amazonaws\.com(?:\.cn)?")
_CERTIFICATE = re.compile(r"/SimpleNotificationService-[0-9a-zA-Z]{1,64}\.pem")
_SUBSCRIPTION = re.compile(r"/\?[!-~]{1,2000}")
#: What is signed, in this order, by type.
_SUBSCRIBE = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
_SIGNED = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": _SUBSCRIBE,
    "UnsubscribeConfirmation": _SUBSCRIBE,
}

_V = TypeVar("_V")

#: Fetches the content of a URL; raises OSError.
Fetch = Callable[[str], bytes]


class SnsUnavailable(Exception):
    """A message cannot be checked, as when Amazon does not answer; SNS sends it again."""


def fetch(url: str) -> bytes:
    """The content of a URL at a public address.

    Raises:
        OSError: it cannot be had.
    """
    from boyd.outbound.guarded_session import BoundedSession

    with BoundedSession(allow_private=False, timeout=TIMEOUT) as session:
        answer = session.get(url)
        answer.raise_for_status()
        return answer.content


class SnsVerifier:
    """Checks messages of SNS, and keeps the certificates that they are signed with."""

    def __init__(self, fetch: Fetch = fetch, clock: Callable[[], float] = time.time) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._fetching = threading.BoundedSemaphore(MAX_FETCHES)
        self._known: OrderedDict[str, tuple[float, Any]] = OrderedDict()
        self._asked: OrderedDict[str, float] = OrderedDict()

    def check(self, auth: SnsAuth, body: bytes) -> str:
        """Check a message of one of the topics, confirm a subscription; return the message's id.

        Raises:
            SenderRefused: it is of another topic, too old, or its signature does not fit.
            SnsUnavailable: Amazon does not answer, or a library is not installed.
        """
        _check_installed()
        sent = _message(body)
        if sent["TopicArn"] not in auth.topics:
            raise SenderRefused("the topic is not one of those that may send")
        self._check_time(sent["Timestamp"])
        key = self._key(_sns_url(sent, "SigningCertURL", _CERTIFICATE))
        _check_signature(key, sent)
        if sent["Type"] == "SubscriptionConfirmation":
            self._confirm(sent)
        return f"{sent['TopicArn']} {sent['MessageId']}"

    def _confirm(self, sent: Mapping[str, str]) -> None:
        url = _sns_url(sent, "SubscribeURL", _SUBSCRIPTION)
        query = parse_qs(urlsplit(url).query)
        if query.get("Action") != ["ConfirmSubscription"] or (
            query.get("TopicArn") != [sent["TopicArn"]]
        ):
            raise SenderRefused("SubscribeURL does not confirm the subscription")
        self._get(url)

    def _check_time(self, text: str) -> None:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise SenderRefused("Timestamp is no time") from None
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        if abs(self._clock() - at.timestamp()) > WINDOW:
            raise SenderRefused(f"Timestamp is more than {WINDOW:g} seconds away from now")

    def _key(self, url: str) -> Any:
        """The public key in the certificate."""
        now = self._clock()
        with self._lock:
            until, key = self._known.get(url, (0.0, None))
            if now < until:
                return key
            if now < self._asked.get(url, 0.0):
                raise SnsUnavailable("the certificate could not be fetched a moment ago")
            # Apart from those that are known: anybody can ask for what is not there.
            _keep(self._asked, url, now + AGAIN)
        key = _public_key(self._get(url), now)
        with self._lock:
            _keep(self._known, url, (now + KEEP, key))
        return key

    def _get(self, url: str) -> bytes:
        # Whoever knows the name of a topic can have URLs fetched: not with all threads of the API.
        if not self._fetching.acquire(blocking=False):
            raise SnsUnavailable("too many requests to Amazon at once")
        try:
            return self._fetch(url)
        except OSError as error:
            raise SnsUnavailable(f"Amazon does not answer: {type(error).__name__}") from error
        finally:
            self._fetching.release()


def _keep(store: OrderedDict[str, _V], url: str, value: _V) -> None:
    store[url] = value
    store.move_to_end(url)
    while len(store) > MAX_CERTIFICATES:
        store.popitem(last=False)


def _message(body: bytes) -> Mapping[str, str]:
    if len(body) > MAX_BODY:
        raise SenderRefused(f"longer than {MAX_BODY} bytes, which no message of SNS is")
    try:
        sent = read_json(body)
    except BadIntake as error:
        raise SenderRefused(f"not a message of SNS: {error}") from None
    kind = sent.get("Type") if isinstance(sent, dict) else None
    names = _SIGNED.get(kind, ()) if isinstance(kind, str) else ()
    missing = [name for name in names if name != "Subject" and not isinstance(sent.get(name), str)]
    if not names or missing:
        raise SenderRefused("not a message of SNS")
    texts: Mapping[str, str] = {k: v for k, v in sent.items() if isinstance(v, str)}
    return texts


def _sns_url(sent: Mapping[str, str], name: str, rest: re.Pattern[str]) -> str:
    """A URL of SNS itself, in the region of the topic: anybody can have others at Amazon."""
    url = sent.get(name, "")
    try:
        parts = urlsplit(url)
        plain = (parts.scheme, parts.netloc) == ("https", parts.hostname)
    except ValueError:
        raise SenderRefused(f"{name} is not a URL of SNS") from None
    host = _HOST.fullmatch(parts.netloc)
    here = host is not None and sent["TopicArn"].split(":")[3:4] == [host[1]]
    if not (plain and here and rest.fullmatch(url.removeprefix(f"https://{parts.netloc}"))):
        raise SenderRefused(f"{name} is not a URL of SNS in the region of the topic")
    return url


def _check_installed() -> None:
    if find_spec("cryptography") is None:
        missing = "cryptography, which is not installed: run `pip install 'boyd[intakes]'`"
        raise SnsUnavailable(f"a signature of Amazon needs {missing}")


def _public_key(pem: bytes, now: float) -> Any:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    try:
        certificate = x509.load_pem_x509_certificate(pem)
        key = certificate.public_key()
    except ValueError:
        raise SenderRefused("the certificate of the signature cannot be read") from None
    valid = (
        certificate.not_valid_before_utc.timestamp(),
        certificate.not_valid_after_utc.timestamp(),
    )
    if not valid[0] <= now <= valid[1] or not isinstance(key, RSAPublicKey):
        raise SenderRefused("the certificate of the signature is not valid now")
    return key


def _check_signature(key: Any, sent: Mapping[str, str]) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

    # Amazon signs with SHA-1 unless the topic asks for version 2.
    kinds = {"1": hashes.SHA1, "2": hashes.SHA256}
    kind = kinds.get(sent.get("SignatureVersion", ""))
    fields = [name for name in _SIGNED[sent["Type"]] if name in sent]
    signed = "".join(f"{name}\n{sent[name]}\n" for name in fields)
    try:
        if kind is None:
            raise SenderRefused("SignatureVersion is neither 1 nor 2")
        signature = base64.b64decode(sent.get("Signature", ""), validate=True)
        key.verify(signature, signed.encode(), PKCS1v15(), kind())
    except (InvalidSignature, ValueError):
        raise SenderRefused("the signature does not fit") from None
