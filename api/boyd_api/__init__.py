"""Boyd's HTTP API."""
