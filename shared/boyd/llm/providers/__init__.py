"""The wire formats of model providers."""
