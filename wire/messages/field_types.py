"""Types of message fields that are narrower than `int`. Decoding checks them.

Pure: declarations.
"""

from typing import Annotated, TypeVar

import msgspec

NodeId = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
"""The id of a node, on the wire, on disk and in memory."""

EPOCH_MAX = (1 << 32) - 1
Epoch = Annotated[int, msgspec.Meta(ge=0, le=EPOCH_MAX)]
"""A leader epoch, a partition epoch or a term of Raft; as wide as in the header of a batch."""

LogEpoch = Annotated[int, msgspec.Meta(ge=-1, le=EPOCH_MAX)]
"""The leader epoch of the last record of a log, -1 for an empty log."""

BrokerEpoch = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""The epoch of a broker's registration."""

PartitionNumber = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
"""The number of a partition in its topic."""

Offset = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""An offset, also the end of a log."""

Port = Annotated[int, msgspec.Meta(ge=0, le=(1 << 16) - 1)]
"""A port of TCP, or 0 for none."""

ByteCount = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A number of bytes."""

ProducerEpoch = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
"""A producer epoch, as wide as in the header of a record batch."""

ProducerId = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A producer id, or 0 for none."""

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A length of time."""

PARTITION_COUNT_MAX = 10_000
"""Maximum partitions of a topic."""

LIST_LENGTH_MAX = 1_000
"""Maximum items of a list in one request: a broker processes so many without delaying others."""

LONG_LIST_LENGTH_MAX = PARTITION_COUNT_MAX
"""The same for lists that a broker processes in steps, and for those of numbers."""

_Item = TypeVar("_Item")

Listed = Annotated[list[_Item], msgspec.Meta(max_length=LIST_LENGTH_MAX)]
"""A list in a request."""

LongListed = Annotated[list[_Item], msgspec.Meta(max_length=LONG_LIST_LENGTH_MAX)]
"""A list in a request that may name all partitions of a topic."""

StoredList = Annotated[list[_Item], msgspec.Meta(max_length=100_000)]
"""A list in a request that records of the metadata have too: earlier versions stored so many
items, and stored records stay readable. The handler of the request checks the length."""

Settings = Annotated[dict[str, str], msgspec.Meta(max_length=LIST_LENGTH_MAX)]
"""Names and values of settings in a request."""

LABELS_BYTES_MAX = 64 * 1024
"""Maximum bytes of all names and values of the labels of one topic or queue, in UTF-8: enough for
50 tags of SQS with 128 and 256 characters of two bytes, and a policy of 8 KiB beside them."""

Labels = Annotated[dict[str, str], msgspec.Meta(max_length=2048)]
"""Names and values of labels in a request. A name has one byte or more."""
