"""Watches file systems and sets of files, rotates files and deletes old ones."""
