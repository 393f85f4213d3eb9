"""Copies ended work to other systems: a database, and a collector of traces."""
