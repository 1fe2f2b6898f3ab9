"""Encryption at rest: master keys, data keys of topics, and the ciphers of partitions."""
