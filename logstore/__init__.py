"""One partition's log on one disk: segments, indexes, append, read, recovery, retention.

Synchronous, without trio; all file access goes through `logstore.disk.disk`.
"""
