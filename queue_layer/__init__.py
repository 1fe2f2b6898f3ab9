"""Queues over partitions: visibility, receive counts, FIFO groups, dead letters.

Nothing is here yet. A queue will be a named subscription whose state for each message is a
journal next to the partition, so that deleting a message never removes it from the log.
"""
