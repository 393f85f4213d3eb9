"""Checks names in the DNS, and whether resolvers agree on them."""

from boyd_connectors.dns.plugin import Dns

__all__ = ["Dns"]
