"""Replication of one partition: in-sync replicas, high watermark, leader epochs.

The leader's side is here, for a leader that is alone. Followers that pull from it come with the
second broker.
"""
