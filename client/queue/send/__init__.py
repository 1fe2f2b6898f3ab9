"""Sending messages: fields, order, large bodies."""
