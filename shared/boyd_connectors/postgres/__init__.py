"""Watches a PostgreSQL server, and ends queries and sessions that harm others."""
