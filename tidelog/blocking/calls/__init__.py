"""Calls of the client that wait; written by `tools.face_calls`, not by hand."""
