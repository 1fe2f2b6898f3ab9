"""Fetching records: positions, prefetch, iteration."""
