"""Queues that three real brokers serve, whose leaders are killed and stopped under load."""
