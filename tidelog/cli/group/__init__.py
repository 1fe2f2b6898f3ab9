"""The commands `tidelog group`."""
