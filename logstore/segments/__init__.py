"""Segment files, their index, and the scans over them."""
