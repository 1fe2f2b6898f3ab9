"""Principals and credentials, for both ends of a connection."""
