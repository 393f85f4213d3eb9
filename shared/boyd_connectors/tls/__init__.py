"""Checks the certificates that TLS servers present."""

from boyd_connectors.tls.plugin import Tls

__all__ = ["Tls"]
