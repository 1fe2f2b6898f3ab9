"""Queues where they are served: the shell around `queue_layer`.

A partition of a queue is served by the broker that leads its journal. `broker.queues.served` has
one such partition, `broker.queues.serving` all of them; the handlers are beside them.
"""
