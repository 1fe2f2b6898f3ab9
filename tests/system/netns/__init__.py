"""Real brokers in network namespaces of their own, in trouble: `make netns MINUTES=10`."""
