"""A certificate authority, and TLS servers in threads that present its certificates."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """An authority with its certificate in *folder*."""

    def __init__(self, folder: Path, name: str = "Authority of the tests") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        #: What servers send along: certificates of authorities.
        self.chain = b""
        certificate = self._build(self._name, self._key, 365, x509.BasicConstraints(True, None))
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def below(self, days: float) -> Authority:
        """An authority that this one has certified until *days* from now."""
        lower = Authority(self._folder, f"Intermediate of {days} days")
        certificate = self._build(lower._name, lower._key, days, x509.BasicConstraints(True, None))
        lower.chain = certificate.public_bytes(serialization.Encoding.PEM)
        return lower

    def issue(self, *names: str, days: float = 90) -> Path:
        """A certificate with its key in a file; *days* from now it ends."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        certificate = self._build(
            subject, key, days, x509.SubjectAlternativeName(map(_general, names))
        )
        pem = serialization.Encoding.PEM
        form = serialization.PrivateFormat.PKCS8
        file = self._folder / f"{names[0]}-{days}.pem"
        file.write_bytes(
            certificate.public_bytes(pem)
            + self.chain
            + key.private_bytes(pem, form, serialization.NoEncryption())
        )
        return file

    def _build(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        days: float,
        extension: x509.ExtensionType,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        ski = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        aki = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=100))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(extension, critical=True)
            .add_extension(ski, critical=False)
            .add_extension(aki, critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@contextmanager
def tls_server(file: Path, port: int = 0, most: ssl.TLSVersion | None = None) -> Iterator[int]:
    """A server that presents the certificate in *file*; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    if most is not None:
        context.maximum_version = most
    listener = socket.create_server(("127.0.0.1", port))

    def serve() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            plain.settimeout(60)
            try:
                context.wrap_socket(plain, server_side=True).close()
            except OSError:
                plain.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
