"""The commands `tidelog key`."""
