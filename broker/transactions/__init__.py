"""Transactions: records staged beside their partitions, appended to them when committed."""
