"""The archive: ended work of all agents, copied out of Redis into SQLite or PostgreSQL.

`Copier` copies, `Past` presents Redis and archive as one history. This package imports nothing, so
that only processes that use a database load SQLAlchemy.
"""
