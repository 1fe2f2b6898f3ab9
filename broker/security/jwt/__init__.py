"""JSON Web Tokens of an identity provider: keys, verification, and the mechanism JWT."""
