"""The command `tidelog serve`."""
