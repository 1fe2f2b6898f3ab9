"""Samples of the messages about access."""

from tidelog.wire.messages.access import (
    AccessExplanation,
    AccessRule,
    AlterAccessReply,
    AlterAccessRequest,
    ExplainAccessReply,
    ExplainAccessRequest,
    ListAccessReply,
    ListAccessRequest,
    RoleChange,
    RoleDescription,
)
from tidelog.wire.messages.cluster import AwaitMetadataReply, AwaitMetadataRequest

READ = AccessRule("user:alice", "topic", "orders-*", ["read", "write"])
DENY = AccessRule("role:team", "queue", "work", ["*"], is_deny=True)

ALTER_ACCESS = (
    AlterAccessRequest(
        add=[READ],
        remove=[DENY],
        roles=[
            RoleChange("team", ["alice"], ["bob"]),
            RoleChange("old", add_members=["a"], remove_members=["b"], is_removed=True),
        ],
    ),
    AlterAccessReply(rules=[READ, DENY], unconfirmed_nodes=[3]),
)
LIST_ACCESS = (
    ListAccessRequest(principal="user:alice", kind="topic", name="orders-eu"),
    ListAccessReply(rules=[READ, DENY], roles=[RoleDescription("team", ["alice", "carol"])]),
)
EXPLAIN_ACCESS = (
    ExplainAccessRequest(
        principal="user:alice", action="write", kind="topic", name="orders", roles=["team"]
    ),
    ExplainAccessReply(
        explanations=[
            AccessExplanation(
                "user:alice", is_allowed=True, rule=READ, roles=[], remedy="", notes=[]
            ),
            AccessExplanation(
                "user:bob",
                is_allowed=False,
                rule=None,
                roles=["team"],
                remedy="tidelog access grant user:bob write topic orders",
                notes=["user:bob may send queue work, and so append records of topic orders"],
            ),
        ],
        mode="enforce",
    ),
)
AWAIT_METADATA = (
    AwaitMetadataRequest(cluster_id="5f3a9c1e7b2d4f60a8c1e3d5", index=300),
    AwaitMetadataReply(applied_index=301),
)
