"""`tidelog cluster`."""
