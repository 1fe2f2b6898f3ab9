"""The real environment: clock, threads, and TCP."""
