"""The command `tidelog bench`: rates and latencies of one's own cluster."""
