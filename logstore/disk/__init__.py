"""The disk seam and its implementation for the operating system."""
