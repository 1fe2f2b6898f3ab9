"""Cluster metadata: topics and their settings, producer ids.

A single node decides alone and keeps the catalog in a log of its own. Agreement by Raft,
leadership, consumer groups and committed offsets come with the second broker.
"""
