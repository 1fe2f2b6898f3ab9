"""The coordinator: Raft, cluster metadata, leadership, consumer groups and committed offsets.

`raft/`, `metadata/` and `groups/` are cores. `raft_node/`, `controller/` and `group_coordinator/`
are their shells, `bootstrap/` opens a node, and `node.py` puts all of them together.
"""
