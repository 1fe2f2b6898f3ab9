"""Identities of clients, and what each may do."""
