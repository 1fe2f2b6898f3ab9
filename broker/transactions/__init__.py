"""Transactions: records staged beside their partitions, and appended to them on commit."""
