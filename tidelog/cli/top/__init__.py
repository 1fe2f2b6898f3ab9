"""The command `tidelog top`."""
