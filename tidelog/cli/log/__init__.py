"""`tidelog log`."""
