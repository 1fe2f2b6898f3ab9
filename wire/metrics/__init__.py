"""Metrics: their declaration, their values, and the text format in which Prometheus reads them."""
