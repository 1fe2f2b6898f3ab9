"""The controller: the replicated metadata, and the clients of its commands."""
