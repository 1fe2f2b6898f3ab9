"""Warnings before retention deletes messages that no consumer has received."""
