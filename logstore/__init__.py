"""One partition's log on one disk: segments, indexes, append, read, recovery, retention.

Synchronous, and never imports trio; files are reached only through `logstore.disk.disk`.
"""
