"""Request handlers: one module for each kind of request, from message to reply."""
