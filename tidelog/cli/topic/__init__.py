"""`tidelog topic`."""
