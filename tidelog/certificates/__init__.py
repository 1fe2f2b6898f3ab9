"""Certificates of a cluster: its CA, its nodes and its users. Needs `tidelog[security]`."""
