"""Connections, metadata, retries: what producer, consumer, queue and admin clients share."""
