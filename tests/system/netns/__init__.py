"""Real brokers in network namespaces of their own, under faults: `make netns MINUTES=10`."""
