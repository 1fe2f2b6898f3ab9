"""Cluster metadata, leadership, consumer groups and committed offsets, agreed on by Raft.

Nothing is here yet: the single broker keeps its topics itself, behind the interface that this
package will take over.
"""
