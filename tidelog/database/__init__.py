"""Access to SQL databases that the outbox and the inbox share."""
