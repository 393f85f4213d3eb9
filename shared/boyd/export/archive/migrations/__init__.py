"""Migrations of the archive's tables, as Alembic runs them."""
