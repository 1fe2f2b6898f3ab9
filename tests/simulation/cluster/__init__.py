"""Runs of whole clusters: several brokers, their clients, and their faults."""
