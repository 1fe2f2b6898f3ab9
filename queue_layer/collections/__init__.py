"""Memory-efficient collections of the queue state."""
