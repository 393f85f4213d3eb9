"""The commands of `boyd` about goals."""
