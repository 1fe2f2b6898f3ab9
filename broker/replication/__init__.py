"""Replication of partitions: the leader's side for its followers, and the follower's side."""
