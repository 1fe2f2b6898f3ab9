"""Membership of a consumer group (KIP-848) and committed offsets."""
