"""Metrics of a broker: their catalog, and the counters that request handlers touch."""
