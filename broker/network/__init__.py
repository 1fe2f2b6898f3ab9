"""Listening sockets and client connections."""
