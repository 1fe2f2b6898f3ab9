"""Replication of one partition: in-sync replicas, high watermark, leader epochs.

`leader` decides what is committed, `followers` who is in sync, `follower` what a follower does with
what its leader says, `divergence` where two logs part. `docs/replication.md` tells the story.
"""
