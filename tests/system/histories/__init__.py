"""Histories of real clients against real processes: `python -m tests.system.histories`."""
