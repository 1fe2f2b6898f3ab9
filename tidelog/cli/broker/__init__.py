"""The commands `tidelog broker ...`."""
