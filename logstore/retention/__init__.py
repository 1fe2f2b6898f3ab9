"""Retention: the segments to delete, and the ingest rate."""
