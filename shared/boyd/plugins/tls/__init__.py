"""Checks the certificates that TLS servers present."""

from boyd.plugins.tls.plugin import Tls

__all__ = ["Tls"]
