"""Pages of the console about goals."""
