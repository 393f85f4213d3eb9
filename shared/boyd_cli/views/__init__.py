"""Prints what several commands show."""
