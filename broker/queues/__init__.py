"""Queues as a broker serves them: the shell around `queue_layer`.

The broker that leads the journal of a queue partition serves it.
`broker.queues.partition.hosted_partition` holds one such partition, `broker.queues.queue_server`
all of them; the handlers are beside them.
"""
