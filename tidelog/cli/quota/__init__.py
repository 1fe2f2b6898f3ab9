"""The commands `tidelog quota`."""
