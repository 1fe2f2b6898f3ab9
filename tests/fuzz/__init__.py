"""Hostile peers of a cluster of real processes; `make fuzz` runs them for longer."""
