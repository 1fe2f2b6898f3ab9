"""Calculation of the end offsets of a stream's next batch.

Pure: no clock, no I/O, no pyspark. A stream never goes back: its end offsets are never below the
end of the last batch, never lack a partition that was there, and are never empty.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import le
from typing import final

from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.read.offset_ranges import (
    Offsets,
    Slice,
    StreamOffset,
    advance,
    backlog,
)
from tidelog.spark_connector.read.partition_bounds import PartitionRange, PartitionRanges


@final
@dataclass(frozen=True, slots=True)
class AvailableOffsets:
    """Offsets up to which a stream can read now."""

    begin: Offsets
    """Start of the next batch for each partition of `end`, if it is not the stream's position: the
    offset after a loss, or 0 for a recreated topic."""
    end: StreamOffset
    losses: list[str]
    """Unread records that were deleted, one line for each loss."""


def available_offsets(start: StreamOffset, ranges: PartitionRanges) -> AvailableOffsets:
    """Return the available offsets of a stream at `start`.

    A partition keeps its position if its leader does not answer or the reply lacks it.
    """
    return _available_at_once(start, ranges) or _available_one_by_one(start, ranges)


def _available_at_once(start: StreamOffset, ranges: PartitionRanges) -> AvailableOffsets | None:
    """Return the available offsets if no partition is lost, new or truncated, `None` otherwise.

    Nearly every refresh takes this path, several times a second, so it has no Python loop over
    partitions.
    """
    places = sorted(ranges)
    if not places or list(ranges) != places or list(start.offsets) != places:
        return None
    topic_ids, begins_at, ends_at, _, known, _ = zip(*ranges.values(), strict=True)
    topics, _ = zip(*places, strict=True)
    begins = start.offsets.values()
    is_as_before = (
        all(known)
        and tuple(map(start.topic_ids.get, topics)) == topic_ids
        and len(start.topic_ids) == len(set(topics))
        and all(map(le, begins_at, begins))
        and all(map(le, begins, ends_at))
    )
    if not is_as_before:
        return None
    ends = dict(zip(places, ends_at, strict=True))
    return AvailableOffsets(start.offsets, StreamOffset(ends, start.topic_ids), [])


def _available_one_by_one(start: StreamOffset, ranges: PartitionRanges) -> AvailableOffsets:
    """Return the available offsets for any change of partitions and topics."""
    ids = dict(start.topic_ids)
    found = {at.topic: bounds.topic_id for at, bounds in ranges.items()}
    losses = _topic_losses(start, ranges, found)
    recreated = {topic for topic, topic_id in found.items() if ids.get(topic, topic_id) != topic_id}
    begins = {at: offset for at, offset in start.offsets.items() if at.topic not in recreated}
    ends = dict(begins)
    for at, bounds in ranges.items():
        topic_id, begins_at, ends_at, _, is_known, _ = bounds
        if not is_known and at.topic not in recreated:
            continue
        ids[at.topic] = topic_id
        begin = ends.get(at, 0)
        if begins_at <= begin <= ends_at:
            begins[at], ends[at] = begin, ends_at
            continue
        losses.append(_partition_loss(at, begin, bounds, was_there=at in ends))
        ends[at] = max(begin, ends_at)
        begins[at] = min(max(begin, begins_at), ends[at])
    return AvailableOffsets(
        begins, StreamOffset({at: ends[at] for at in sorted(ends)}, ids), losses
    )


def _topic_losses(
    start: StreamOffset, ranges: PartitionRanges, found: Mapping[str, bytes]
) -> list[str]:
    losses: list[str] = []
    for topic, topic_id in start.topic_ids.items():
        if topic not in found:
            losses.append(f"topic {topic} is gone")
        elif found[topic] != topic_id:
            losses.append(f"topic {topic} was deleted, and another one of that name was created")
        else:
            gone = [at.partition for at in start.offsets if at.topic == topic and at not in ranges]
            if gone:
                losses.append(f"partitions {gone} of topic {topic} are gone")
    return losses


def _partition_loss(
    at: TopicPartition, begin: int, bounds: PartitionRange, *, was_there: bool
) -> str:
    name = f"{at.topic}/{at.partition}"
    if bounds.start > begin:
        what = "the log begins" if was_there else "it was added, and begins"
        return f"{name}: offsets [{begin}, {bounds.start}) are gone: {what} at {bounds.start}"
    return f"{name}: the stream is at {begin}, and the log ends at {bounds.end}"


def limited(begin: Offsets, end: StreamOffset, *, numerator: int, denominator: int) -> StreamOffset:
    """Return the end of a batch that may read `numerator` of `denominator` units.

    Each partition with a backlog advances by at least one offset, and none beyond its end.
    """
    if numerator >= denominator:
        return end
    offsets = advance(begin, end.offsets, numerator=numerator, denominator=denominator)
    return StreamOffset(offsets, end.topic_ids)


def within(position: StreamOffset, target: StreamOffset, start: StreamOffset) -> StreamOffset:
    """Return a position capped at a target, without partitions that were created later.

    No partition falls below the position of the stream.
    """
    offsets: dict[TopicPartition, int] = {}
    ids: dict[str, bytes] = {}
    for at in sorted({*position.offsets, *start.offsets}):
        topic_id = position.topic_ids.get(at.topic)
        start_id = start.topic_ids.get(at.topic)
        is_within = at in position.offsets and at in target.offsets
        if is_within and topic_id is not None and topic_id == target.topic_ids[at.topic]:
            floor = start.offsets.get(at, 0) if start_id == topic_id else 0
            offsets[at] = max(min(position.offsets[at], target.offsets[at]), floor)
            ids[at.topic] = topic_id
        elif (
            start_id is not None
            and at in start.offsets
            and ids.setdefault(at.topic, start_id) == start_id
        ):
            offsets[at] = start.offsets[at]
    return StreamOffset(offsets, ids) if offsets else start


def with_epochs(
    position: StreamOffset, start: StreamOffset, ranges: PartitionRanges
) -> StreamOffset:
    """Return the end of a batch with the leader epochs of its last records, where they are known.

    A leader reports the epoch at the end of its log. It is also that of earlier records if the
    batch starts in the same epoch, because epochs never fall.
    """
    epochs: dict[TopicPartition, int] = {}
    for at, offset in position.offsets.items():
        topic_id, bounds = position.topic_ids[at.topic], ranges.get(at)
        is_same = start.topic_ids.get(at.topic) == topic_id
        epoch = start.epochs.get(at) if is_same else None
        has_moved = not is_same or start.offsets.get(at) != offset
        if has_moved and (bounds is None or bounds.topic_id != topic_id or offset > bounds.end):
            epoch = None
        elif has_moved and bounds is not None and epoch != bounds.leader_epoch:
            epoch = bounds.leader_epoch if offset == bounds.end else None
        if epoch is not None:
            epochs[at] = epoch
    return StreamOffset(position.offsets, position.topic_ids, epochs)


def bytes_between(begin: Offsets, end: Offsets, ranges: PartitionRanges) -> int:
    """Return the approximate bytes between, by the mean size of each partition's records."""
    total = 0
    for at, limit in end.items():
        bounds = ranges.get(at)
        count = limit - begin.get(at, 0)
        if bounds is None or count <= 0:
            continue
        held = max(bounds.end - bounds.start, 1)
        total += -(-count * bounds.size_bytes // held)
    return total


def slices_between(start: StreamOffset, end: StreamOffset) -> list[Slice]:
    """Return the slices between two positions; the result depends on nothing else.

    A new partition, or one of a recreated topic, is read from 0. A partition whose end is below its
    start has no slice: a stream that begins at the end asks so after a crash in its first batch.
    """
    found: list[Slice] = []
    for at, limit in end.offsets.items():
        topic_id = end.topic_ids[at.topic]
        is_same = start.topic_ids.get(at.topic) == topic_id
        begin = start.offsets.get(at, 0) if is_same else 0
        epoch = start.epochs.get(at) if is_same else None
        if limit > begin:
            found.append(Slice(at.topic, topic_id, at.partition, begin, limit, epoch))
    return found


def size_between(begin: Offsets, end: StreamOffset) -> int:
    """Return the number of offsets of a batch."""
    return backlog(begin, end.offsets)
