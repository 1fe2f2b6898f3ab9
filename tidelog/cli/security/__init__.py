"""Commands about identities and access."""
