"""The APIs that a broker offers in its hello.

Pure: a declaration.
"""

from typing import Any, Final

from wire import api

APIS: Final[tuple[api.Api[Any, Any], ...]] = (
    api.HELLO,
    api.METADATA,
    api.CREATE_TOPIC,
    api.DESCRIBE_TOPICS,
    api.ALTER_TOPIC,
    api.DELETE_TOPIC,
    api.DELETE_RECORDS,
    api.INIT_PRODUCER,
    api.PRODUCE,
    api.FETCH,
    api.LIST_OFFSETS,
    api.GROUP_HEARTBEAT,
    api.COMMIT_OFFSETS,
    api.FETCH_OFFSETS,
    api.LIST_GROUPS,
    api.DESCRIBE_GROUPS,
    api.RESET_OFFSETS,
    api.DELETE_GROUP,
    api.PEER_STATUS,
    api.RAFT,
    api.RAFT_SNAPSHOT,
    api.DECIDE,
    api.HEARTBEAT,
    api.JOIN,
    api.EXTENTS,
    api.REPLICA_FETCH,
    api.REPLICA_DURABLE,
    api.REPLICA_READ,
    api.DESCRIBE_CLUSTER,
    api.ELECT_LEADERS,
    api.REASSIGN,
    api.ALTER_CLUSTER,
    api.DESCRIBE_MOVES,
    api.DRAIN_BROKER,
    api.UNREGISTER_BROKER,
    api.CREATE_QUEUE,
    api.DESCRIBE_QUEUES,
    api.ALTER_QUEUE,
    api.DELETE_QUEUE,
    api.SEND,
    api.RECEIVE,
    api.SETTLE,
    api.LOOK,
    api.COUNT_MESSAGES,
    api.PURGE,
    api.SEEK_QUEUE,
    api.REDRIVE,
    api.LAST_PURGE,
    api.CANCEL,
    api.DESCRIBE_REDRIVE,
    api.DESCRIBE_PRODUCER,
)
"""All that a broker speaks."""
