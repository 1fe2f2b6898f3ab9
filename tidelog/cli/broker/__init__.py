"""The commands `tidelog broker`."""
