"""Runs of clusters that serve queues: plans, people, and what they are promised."""
