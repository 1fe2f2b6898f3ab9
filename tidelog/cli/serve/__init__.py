"""`tidelog serve`."""
