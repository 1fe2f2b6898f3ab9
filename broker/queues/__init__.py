"""Queues where they are served: the shell around `queue_layer`.

A partition of a queue is served by the broker that leads its journal.
`broker.queues.partition.hosted_partition` has
one such partition, `broker.queues.queue_server` all of them; the handlers are beside them.
"""
