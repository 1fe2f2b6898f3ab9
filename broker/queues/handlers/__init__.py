"""Request handlers of the queue APIs."""
