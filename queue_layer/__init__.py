"""Queues over partitions: visibility, receive counts, FIFO groups, dead letters.

A queue is a named subscription whose state for each message is a journal beside the partition, so
that deleting a message never removes it from the log. Start reading at
`queue_layer.queue_partition`; `docs/decisions/0015-queues.md` has the reasons.
"""
