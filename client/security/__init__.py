"""Credentials of a client, and the proofs of its connections."""
