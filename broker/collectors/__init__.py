"""Collectors: they read the values of all metrics, in steps between which other tasks run."""
