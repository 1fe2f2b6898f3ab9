"""The replicas that this broker hosts, and its data directory."""
