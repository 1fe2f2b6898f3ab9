"""The metadata of a cluster: brokers, topics, partitions with their leaders, configuration.

`state_machine` is the replicated state machine. The other modules are its rules, and the decisions
that the controller takes beside it. Begin with `docs/metadata.md`.
"""
