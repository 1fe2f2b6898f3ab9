"""Replicas of partitions: what a broker does as a leader for its followers, and as a follower."""
