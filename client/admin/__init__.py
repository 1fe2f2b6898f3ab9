"""The admin client: topics, groups, queues, the cluster."""
