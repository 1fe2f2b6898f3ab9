"""The commands `tidelog log`."""
