"""The commands `tidelog cluster`."""
