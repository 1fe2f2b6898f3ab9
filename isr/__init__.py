"""Replication of one partition: in-sync replicas, high watermark, leader epochs.

Nothing is here yet: a broker is alone, and the leader of every partition it has. Followers that
pull from the leader come with the second broker.
"""
