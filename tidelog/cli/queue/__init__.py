"""`tidelog queue`."""
