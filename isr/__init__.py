"""Replication of one partition: in-sync replicas, high watermark, leader epochs.

`leader` advances the high watermark, `followers` proposes the ISR, `follower` decides a follower's
steps, and `divergence` finds where two logs diverge. `docs/replication.md` is the overview.
"""
