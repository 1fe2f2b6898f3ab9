"""Inspection of the files of a stopped broker: dump, verify, repair."""
