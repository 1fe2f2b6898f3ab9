"""Security metadata: users, tokens, roles, grants, quotas and wrapped data keys."""
