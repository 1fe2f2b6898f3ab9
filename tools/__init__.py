"""Generators of files of the repository."""
