"""Agents that real workers run in tests."""
