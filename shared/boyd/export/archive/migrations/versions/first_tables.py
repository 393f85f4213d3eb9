"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create all tables."""
    _create_records()
    op.create_table(
        "terms",
        sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
        sa.Column("term", _NAME, nullable=False),
    )
    op.create_index("terms_by_term", "terms", ["term"], unique=True)
    op.create_table(
        "postings",
        sa.Column("term", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("key", sa.BigInteger, primary_key=True, autoincrement=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "positions",
        sa.Column("agent", _NAME, primary_key=True),
        sa.Column("kind", _NAME, primary_key=True),
        sa.Column("place", sa.Text, nullable=False),
    )


def _create_records() -> None:
    op.create_table(
        "records",
        sa.Column("key", _KEY, primary_key=True, autoincrement=False),
        sa.Column("agent", _NAME, nullable=False),
        sa.Column("kind", _NAME, nullable=False),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("stamp", sa.Text, nullable=False),
        sa.Column("open", sa.Boolean, nullable=False),
        sa.Column("outline", sa.Text, nullable=False),
    )
    op.create_index("records_by_name", "records", ["agent", "kind", "name"], unique=True)
    op.create_index("records_by_key", "records", ["agent", "kind", "key"])
    is_open = sa.text("open")
    op.create_index(
        "records_open",
        "records",
        ["agent", "kind"],
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
    op.create_table(
        "bodies",
        sa.Column(
            "key",
            _KEY,
            sa.ForeignKey("records.key", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
