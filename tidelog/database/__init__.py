"""What the outbox and the inbox share about SQL databases."""
