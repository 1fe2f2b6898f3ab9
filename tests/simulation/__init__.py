"""Fakes of the world that keep its rules and show its worst."""
