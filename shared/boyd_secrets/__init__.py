"""Providers of secrets: files, the environment, Vault or OpenBao, and AWS Secrets Manager."""
