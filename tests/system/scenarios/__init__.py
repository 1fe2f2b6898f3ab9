"""Scenarios in which other brokers lost acknowledged records, on three real processes."""
