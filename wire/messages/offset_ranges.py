"""The message that says how far many partitions go, in few bytes.

Pure: declarations. It is asked several times a second by whoever follows many partitions.
"""

import msgspec

from tidelog.wire.messages.field_types import Listed


class TopicExtentsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask how far the partitions of topics go."""

    topics: Listed[str] | None
    """Names; `None` asks for all topics."""
    with_sizes: bool = False
    """Whether their sizes on disk are wanted, which takes longer."""
    is_local: bool = False
    """Whether only what the asked broker leads is wanted; other partitions are unknown then."""


class TopicExtents(msgspec.Struct, frozen=True, array_like=True):
    """How far the partitions of one topic go; each list has a number for each partition."""

    name: str
    topic_id: bytes
    log_start_offsets: list[int]
    """First offsets still readable."""
    high_watermarks: list[int]
    """Consumers read below them (exclusive ends); never below what another leader has let them
    read."""
    sizes_bytes: list[int]
    """Bytes of the logs' segments on disk; empty if they were not asked for."""
    unknown_partitions: list[int]
    """The partitions that nobody leads, or whose leader does not answer or does not know yet how
    much is committed; their numbers in the lists are 0."""


class TopicExtentsReply(msgspec.Struct, frozen=True, array_like=True):
    """The topics that are there: in the order asked, or sorted by name when all were asked."""

    topics: list[TopicExtents]
