"""Calls of the client that wait; written by `tools.blocking_calls`, not by hand."""
