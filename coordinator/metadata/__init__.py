"""The metadata of a cluster: brokers, topics, partitions and who leads them, configuration.

`machine` is the replicated state machine. The other modules are the rules that it rests on, and the
decisions that the node which leads the cluster takes beside it. Begin with `docs/metadata.md`.
"""
