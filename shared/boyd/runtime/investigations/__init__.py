"""Investigations as workers run them; imported only where an agent has a model."""
