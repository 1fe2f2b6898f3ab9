"""Staged writes: batches of records that become visible together."""
