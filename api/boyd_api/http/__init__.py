"""The HTTP server: requests, authentication, errors, streams and metrics."""
