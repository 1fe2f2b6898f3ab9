"""Trials of queues on three real brokers, whose leaders are killed and paused under load."""
