"""Audit of a broker: records of identities, administration, denials, grants and usage."""
