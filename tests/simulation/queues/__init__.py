"""Runs of clusters that serve queues: plans, users, and checkers."""
