"""Checks names in the DNS, and whether resolvers agree on them."""

from boyd.plugins.dns.plugin import Dns

__all__ = ["Dns"]
