"""Offsets in Spark's JSON format, and the ranges between two of them.

Pure: no clock, no I/O, no pyspark. An offset is that of the next record to read, so ranges are half
open. Spark compares offsets as texts, so equal offsets must be equal texts: topics are sorted by
name and partitions by number, independent of the order in a broker's reply.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, final

from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import ConfigError

IDS: Final = "@ids"
"""Key beside the topics in the offsets of a stream, for their ids in hexadecimal digits. The ids
distinguish a recreated topic from the first one. No topic has a name with an @."""
EPOCHS: Final = "@epochs"
"""Key for the leader epochs of the last read records. Older checkpoints do not have it."""
GROUP: Final = "@group"
"""Key in progress reports, never in a checkpoint, for the group of a stream and its brokers."""
METRICS: Final = "@metrics"
"""Key in progress reports, never in a checkpoint, for what only the planner of a stream knows."""
_TOPIC_ID_BYTES: Final = 16

Offsets = Mapping[TopicPartition, int]
"""Offset of the next record to read, by partition."""


@final
@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Position of a stream."""

    offsets: Offsets
    topic_ids: Mapping[str, bytes]
    """Topic ids by name; every topic of `offsets` has one."""
    epochs: Mapping[TopicPartition, int] = field(
        default_factory=dict[TopicPartition, int], compare=False
    )
    """Leader epoch of the last record below the offset, where it is known. Positions with the same
    offsets are equal."""

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return the JSON for Spark's checkpoint; without epochs, as earlier versions wrote it."""
        ids = {topic: self.topic_ids[topic].hex() for topic in sorted(self.topic_ids)}
        found = {**to_json(self.offsets), IDS: ids}
        if self.epochs:
            found[EPOCHS] = to_json(self.epochs)
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "StreamOffset":
        """Return the position that `to_json` wrote.

        Raises:
            ConfigError: `to_json` did not write it.
        """
        ids: dict[str, bytes] = {}
        offsets: dict[TopicPartition, int] = {}
        epochs: dict[TopicPartition, int] = {}
        try:
            for topic, by_number in found.items():
                if topic == IDS:
                    ids = {name: bytes.fromhex(text) for name, text in by_number.items()}
                elif topic == EPOCHS:
                    for name, by_partition in by_number.items():
                        epochs |= _numbers(name, by_partition)
                else:
                    offsets |= _numbers(topic, by_number)
        except (AttributeError, TypeError, ValueError) as error:
            raise _not_ours(found) from error
        are_ids = all(len(topic_id) == _TOPIC_ID_BYTES for topic_id in ids.values())
        if not are_ids or ids.keys() != {at.topic for at in offsets}:
            raise _not_ours(found)
        return cls(dict(sorted(offsets.items())), ids, epochs)


def to_json(offsets: Offsets) -> dict[str, dict[str, Any]]:
    """Return offsets in the format of Spark's Kafka source: `{"orders":{"0":23}}`."""
    found: dict[str, dict[str, Any]] = {}
    for at in sorted(offsets):
        found.setdefault(at.topic, {})[str(at.partition)] = offsets[at]
    return found


def _numbers(topic: str, by_partition: Mapping[str, object]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(number)): _offset(offset)
        for number, offset in by_partition.items()
    }


def _offset(found: object) -> int:
    if type(found) is not int or found < 0:
        raise ValueError(found)
    return found


def _not_ours(found: object) -> ConfigError:
    return ConfigError(
        f"the checkpoint holds the offset {found!r}, which this source did not write; begin with a"
        " new checkpoint directory"
    )


@final
@dataclass(frozen=True, slots=True)
class Slice:
    """Offset range of one partition for one task."""

    topic: str
    topic_id: bytes
    partition: int
    start: int
    end: int
    """End offset, exclusive."""
    leader_epoch: int | None = None
    """Leader epoch of the last record that was read below `start`, `None` if not known."""

    @property
    def at(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """Number of offsets; some of them may have no record."""
        return self.end - self.start

    def between(self, start: int, end: int) -> "Slice":
        """Return another range of the same partition."""
        epoch = self.leader_epoch if start == self.start else None
        return replace(self, start=start, end=end, leader_epoch=epoch)

    def __str__(self) -> str:
        """Return the slice for messages."""
        return f"{self.topic}/{self.partition} [{self.start}, {self.end})"


def split(
    slices: Iterable[Slice], *, records_max: int | None, min_partitions: int | None
) -> list[Slice]:
    """Cut ranges into enough tasks, none too large; leave out empty ranges.

    Args:
        slices: The ranges to read.
        records_max: No slice has more offsets; a range is cut into equal parts.
        min_partitions: The approximate least number of slices: large ranges are cut in proportion
            to their size, those below the mean are left whole.
    """
    found = [each for each in slices if each.size > 0]
    if records_max is not None:
        found = [part for each in found for part in _cut(each, -(-each.size // records_max))]
    if min_partitions is None or min_partitions <= len(found):
        return found
    total = sum(each.size for each in found)
    small = {each for each in found if each.size * min_partitions < total * 3 // 2}
    large_size = total - sum(each.size for each in small)
    wanted = max(min_partitions - len(small), 1)
    result: list[Slice] = []
    for each in found:
        parts = 1 if each in small else -(-each.size * wanted // large_size)
        result += _cut(each, min(parts, each.size))
    return result


def _cut(each: Slice, count: int) -> list[Slice]:
    """Return `count` parts of equal size, up to one offset."""
    edges = [each.start + each.size * index // count for index in range(count + 1)]
    return [each.between(start, end) for start, end in pairwise(edges)]


def advance(start: Offsets, end: Offsets, *, numerator: int, denominator: int) -> Offsets:
    """Return the end of a batch that may read a share of the backlog.

    Each partition gets the same share of its backlog, rounded down, and at least one offset if it
    has any: no partition starves, so the sum may exceed the limit by one for each.

    Args:
        start: The start of the batch; a missing partition begins at 0.
        end: The end of all available records.
        numerator: The limit of the batch, in any unit.
        denominator: The backlog, in the same unit.
    """
    if numerator >= denominator:
        return dict(end)
    found: dict[TopicPartition, int] = {}
    for at, limit in end.items():
        begin = start.get(at, 0)
        backlog = limit - begin
        if backlog > 0:
            found[at] = begin + max(backlog * numerator // denominator, 1)
        else:
            found[at] = limit
    return found


def backlog(start: Offsets, end: Offsets) -> int:
    """Return the number of offsets between; a partition missing in `start` begins at 0."""
    return sum(max(offset - start.get(at, 0), 0) for at, offset in end.items())


def describe(slices: Sequence[Slice]) -> str:
    """Return the first five ranges for a message."""
    shown = ", ".join(map(str, slices[:5]))
    return shown if len(slices) <= 5 else f"{shown} and {len(slices) - 5} more"  # noqa: PLR2004
