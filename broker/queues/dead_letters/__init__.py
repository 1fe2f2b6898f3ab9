"""Moves of dead letters to their target, redrive, and resumption after a failover."""
