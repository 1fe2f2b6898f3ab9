"""The commands `tidelog queue`."""
