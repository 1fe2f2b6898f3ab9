"""Checkers: the invariants of a run, as classes with exact definitions."""
