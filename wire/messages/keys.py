"""Messages about the keys of encryption at rest. No message has a key, wrapped or not.

Pure: declarations.
"""

from enum import IntEnum

import msgspec

from tidelog.wire.messages.field_types import Listed


class KeyAction(IntEnum):
    """Changes of data keys."""

    ROTATE = 1
    """Add a data key; new records are sealed with it."""
    REWRAP = 2
    """Wrap the data keys by the current master key of the broker that is asked."""
    SHRED = 3
    """Delete data keys for ever; their records cannot be read any more."""


class AlterKeysRequest(msgspec.Struct, frozen=True, array_like=True):
    """Change the data keys of a topic and of its staging log."""

    action: int
    """One of `KeyAction`."""
    topic: str = ""
    """Name of the topic; empty for all topics, with `REWRAP` only."""
    key_ids: Listed[int] = []
    """With `SHRED`: data keys to delete. Empty rotates the data key, and deletes all older ones."""


class ChangedKeys(msgspec.Struct, frozen=True, array_like=True):
    """The changed data keys of a topic."""

    topic: str
    key_ids: list[int]
    """Keys that were added, wrapped again, or deleted."""


class AlterKeysReply(msgspec.Struct, frozen=True, array_like=True):
    """The keys are changed."""

    topics: list[ChangedKeys]


class ListKeysRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask for the data keys of topics, and for the master keys of brokers."""

    topic: str = ""
    """Name of a topic; empty for all that have keys."""
    is_local: bool = False
    """Whether only the asked broker counts."""


class DataKeyDescription(msgspec.Struct, frozen=True, array_like=True):
    """A data key."""

    key_id: int
    """Number of the key, from 1; the highest one seals new records."""
    master_id: str
    """Public id of the master key that wraps it."""
    created_at_ms: int
    """Unix milliseconds."""


class TopicKeys(msgspec.Struct, frozen=True, array_like=True):
    """The data keys of a topic."""

    topic: str
    is_encrypted: bool
    """Whether new records are sealed."""
    keys: list[DataKeyDescription]
    """Ascending; deleted keys are left out."""


class BrokerKeys(msgspec.Struct, frozen=True, array_like=True):
    """The master keys of a broker."""

    node_id: int
    master_ids: list[str] = []
    """Public ids; the first one wraps new data keys."""
    locked_topics: list[str] = []
    """Topics with a replica there that it can neither read nor write."""
    reason: str = ""
    """Why, for one of them; or why the broker did not answer."""


class ListKeysReply(msgspec.Struct, frozen=True, array_like=True):
    """Keys of topics and brokers."""

    topics: list[TopicKeys]
    brokers: list[BrokerKeys]
