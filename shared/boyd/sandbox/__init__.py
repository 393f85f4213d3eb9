"""Sandboxes: processes with a user, limits, folders and destinations of their own."""
