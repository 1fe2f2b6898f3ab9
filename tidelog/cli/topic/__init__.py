"""The commands `tidelog topic`."""
