"""Runs of whole clusters: several brokers, their clients, and what goes wrong between them."""
