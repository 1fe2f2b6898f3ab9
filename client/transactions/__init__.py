"""Transactions: records that become visible together."""
