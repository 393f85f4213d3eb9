"""Signed links and votes, and identity tokens: proofs of who a person or an agent is."""
