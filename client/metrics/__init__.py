"""Metrics of a client: their declaration, counters, and snapshots."""
