"""Staged writes: kept beside their partitions, appended to them when they are committed."""
