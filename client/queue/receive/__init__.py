"""Receiving messages, extending leases, settling, workers."""
