"""The plugin `tls`: checks certificates, whether they are trusted, and protocols of servers."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from boyd.errors import PluginError
from boyd.models import JsonObject, Model, Observation, Severity
from boyd.plugin import Connector, Context, Observer, tool
from boyd.plugins.bounded_calls import BoundedCall, BoundedCalls
from boyd_connectors.connector_parts import CheckReport

if TYPE_CHECKING:
    from cryptography.x509 import Certificate


#: The most names of a certificate that are shown.
MAX_NAMES = 20
#: Characters of an error that are shown.
MAX_ERROR = 300
#: Codes of OpenSSL.
_EXPIRED = 10
_KINDS = {9: "not-yet-valid", 62: "name", 64: "name"}
_ORDER = ["SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"]


class TlsEndpoint(BaseModel):
    """A TLS server.

    Attributes:
        host: the name or address to connect to.
        port: its port.
        server_name: the name to ask for, and to expect in the certificate; by default `host`.
        ca_file: the certificates of authorities to trust; by default those of the system.
        min_version: the lowest version of the protocol that is no trouble.
        strict: whether the strict rules of RFC 5280 count, too, as for clients with Python 3.13;
            the authorities of many companies break them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.:-]{0,252}$")
    port: int = Field(default=443, ge=1, le=65_535)
    server_name: str | None = None
    ca_file: Path | None = None
    min_version: Literal["TLSv1.2", "TLSv1.3"] = "TLSv1.2"
    strict: bool = False

    @property
    def id(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"

    @property
    def name(self) -> str:
        """The name that the certificate must be for."""
        return self.server_name or self.host


class TlsProblem(NamedTuple):
    """A problem of a server: its kind, and what is known of it."""

    problem: str
    severity: Severity
    data: JsonObject


@dataclass(frozen=True)
class Presented:
    """The certificate of a server, those of authorities that it sends along, and the protocol."""

    certificate: Certificate
    version: str
    chain: tuple[Certificate, ...] = ()

    def data(self) -> JsonObject:
        """The certificate for people."""
        names: list[object] = [*names_of(self.certificate)]
        return {
            "subject": self.certificate.subject.rfc4514_string(),
            "issuer": self.certificate.issuer.rfc4514_string(),
            "names": [str(name) for name in names[:MAX_NAMES]],
            "notAfter": self.certificate.not_valid_after_utc.isoformat(),
            "version": self.version,
        }


def problems(
    endpoint: TlsEndpoint, timeout: float, now: datetime, warning: float, error: float
) -> Iterator[TlsProblem]:
    """The problems of a server.

    Args:
        endpoint: the server.
        timeout: seconds that a connection may take.
        now: the time with which the certificate is compared.
        warning: the days before its end from which a certificate is a warning.
        error: the same for an error.
    """
    try:
        presented = look(endpoint, timeout)
        refused = _refusal(endpoint, timeout)
        data = presented.data()
    except (OSError, ValueError) as failure:
        # Not only connections fail: names and certificates may be nonsense.
        yield TlsProblem("unreachable", "error", {"error": _text_of(failure)[:MAX_ERROR]})
        return
    left = presented.certificate.not_valid_after_utc - now
    dated = left <= timedelta(0)
    if dated:
        yield TlsProblem("expired", "critical", data)
    elif left <= timedelta(days=warning):
        yield TlsProblem("expires", _urgency(left, error), data)
    if refused is None:
        yield from _ends_of_chain(presented.chain, now, warning, error)
    if refused and not (dated and refused.verify_code == _EXPIRED):
        problem = _KINDS.get(refused.verify_code, "untrusted")
        yield TlsProblem(problem, "error", {**data, "error": refused.verify_message})
    if _ORDER.index(presented.version) < _ORDER.index(endpoint.min_version):
        yield TlsProblem("protocol", "warning", {**data, "expected": endpoint.min_version})


def _ends_of_chain(
    chain: Iterable[Certificate], now: datetime, warning: float, error: float
) -> Iterator[TlsProblem]:
    """Authorities whose certificates end soon, while clients still trust the server.

    One that has ended already is not needed: there is another way to a trusted authority.
    """
    for authority in chain:
        left = authority.not_valid_after_utc - now
        if authority.issuer != authority.subject and timedelta(0) < left <= timedelta(days=warning):
            data: JsonObject = {"authority": authority.subject.rfc4514_string()}
            data["notAfter"] = authority.not_valid_after_utc.isoformat()
            yield TlsProblem("chain-expires", _urgency(left, error), data)


def _urgency(left: timedelta, error: float) -> Severity:
    return "error" if left <= timedelta(days=error) else "warning"


def look(endpoint: TlsEndpoint, timeout: float) -> Presented:
    """Look at the certificate of a server, whether it is trusted or not.

    Raises:
        OSError: there is no connection, or no handshake.
    """
    from cryptography.x509 import load_der_x509_certificate

    # Old protocols and keys are to be seen here, not refused; nothing is sent.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with _connect(endpoint, timeout, context) as connection:
        certificate = connection.getpeercert(binary_form=True)
        others = _chain_after_leaf(connection)
        version = connection.version()
    if not certificate or not version:
        raise OSError("the server presents no certificate")
    chain = tuple(map(load_der_x509_certificate, others))
    return Presented(load_der_x509_certificate(certificate), version, chain)


def _chain_after_leaf(connection: ssl.SSLSocket) -> list[bytes]:
    """The certificates after the server's own, as it sent them."""
    # Public since Python 3.13; before, only the object behind it has the method.
    source: Any = connection
    if not hasattr(source, "get_unverified_chain"):
        source = getattr(connection, "_sslobj", None)
    chain = source.get_unverified_chain() if source else None
    return [_der(certificate) for certificate in (chain or ())[1:]]


def _der(certificate: Any) -> bytes:
    if isinstance(certificate, bytes):
        return certificate
    return ssl.PEM_cert_to_DER_cert(certificate.public_bytes())


def names_of(certificate: Certificate) -> Iterator[str]:
    """The names and addresses that a certificate is for."""
    from cryptography import x509

    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return
    yield from extension.value.get_values_for_type(x509.DNSName)
    yield from map(str, extension.value.get_values_for_type(x509.IPAddress))


def _refusal(endpoint: TlsEndpoint, timeout: float) -> ssl.SSLCertVerificationError | None:
    """The error with which a client would refuse the server, if any."""
    context = ssl.create_default_context(cafile=endpoint.ca_file)
    # Releases of Python differ in whether they are strict by default.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if endpoint.strict:
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    try:
        _connect(endpoint, timeout, context).close()
    except ssl.SSLCertVerificationError as error:
        return error
    return None


def _connect(endpoint: TlsEndpoint, timeout: float, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection((endpoint.host, endpoint.port), timeout)
    try:
        return context.wrap_socket(plain, server_hostname=endpoint.name)
    except BaseException:
        plain.close()
        raise


def _text_of(error: OSError | ValueError) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


#: Servers that are checked at the same time.
PARALLEL = 16
#: A look makes two connections, each with a handshake: the time limits that it may take.
SLOW = 4


class EndpointParams(Model):
    """A server of the options, as `host:port`."""

    endpoint: str = Field(min_length=1, max_length=300)


class Tls(Connector):
    """Checks certificates of TLS servers: their end, chain and names, and the protocol."""

    id = "tls"

    class Options(Connector.Options):
        """The plugin's options; times in seconds.

        Attributes:
            endpoints: the servers to check.
            warning_days: how many days before its end a certificate is a warning.
            error_days: how many days before its end a certificate is an error.
        """

        endpoints: list[TlsEndpoint] = Field(min_length=1, max_length=500)
        warning_days: float = Field(default=21.0, ge=0)
        error_days: float = Field(default=7.0, ge=0)
        interval: float = Field(default=3600.0, gt=0)
        timeout: float = Field(default=5.0, gt=0, le=30)
        max_items: int = Field(default=50, ge=1, le=1000)

        @model_validator(mode="after")
        def _check_order(self) -> Tls.Options:
            if self.error_days > self.warning_days:
                raise ValueError("error_days must not be above warning_days")
            return self

    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if find_spec("cryptography") is None:
            raise PluginError(self.id, "it needs cryptography: run `pip install 'boyd[tls]'`")
        self._calls = BoundedCalls()
        self.components = (
            Observer(
                name="certificates",
                description="Check the certificates of servers.",
                interval=self.options.interval,
                timeout=300.0,
                observe=self.certificates,
            ),
        )

    def certificates(self, ctx: Context) -> list[Observation]:
        """Check the certificates of servers."""
        check = partial(self._check, ctx.now())
        report, bad = CheckReport(ctx, self.options.max_items), 0
        endpoints = self.options.endpoints
        with ThreadPoolExecutor(PARALLEL) as pool:
            for endpoint, findings in zip(endpoints, pool.map(check, endpoints), strict=True):
                bad += bool(findings)
                for problem, severity, data in findings:
                    common = {"endpoint": endpoint.id, "name": endpoint.name, "problem": problem}
                    report.add("certificate", severity, {**common, **data})
        return report.observations("certificates", endpoints=len(endpoints), bad=bad)

    def _check(self, now: datetime, endpoint: TlsEndpoint) -> list[TlsProblem]:
        """The problems of a server; one that trickles, or whose name is not resolved, is slow."""
        options = self.options
        days = options.warning_days, options.error_days
        call = BoundedCall(
            lambda: list(problems(endpoint, options.timeout, now, *days)), SLOW * options.timeout
        )
        result = self._calls.make({endpoint.id: call})[endpoint.id]
        if isinstance(result, Exception):
            return [TlsProblem("unreachable", "error", {"error": str(result)[:MAX_ERROR]})]
        return result

    @tool()
    def show_certificate(self, params: EndpointParams) -> JsonObject:
        """Show the certificate that a server presents now: names, issuer, end and protocol."""
        endpoints = {endpoint.id: endpoint for endpoint in self.options.endpoints}
        if params.endpoint not in endpoints:
            raise LookupError(f"{params.endpoint} is none of {', '.join(endpoints)}"[:2000])
        return look(endpoints[params.endpoint], self.options.timeout).data()
