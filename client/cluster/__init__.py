"""Connections, metadata and retries, shared by the producer, consumer, queue and admin clients."""
