"""Built-in plugins, each on the public hooks."""
