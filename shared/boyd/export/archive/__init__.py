"""The archive: ended work of all agents, copied out of Redis into SQLite or PostgreSQL.

`Copier` copies; `MergedHistory` and `MergedWork` present Redis and archive as one. This package
imports nothing, so that only processes that use a database load SQLAlchemy.
"""
