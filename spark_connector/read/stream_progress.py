"""How far the next batch of a stream goes.

Pure: no clock, no I/O, no pyspark. A stream never goes back: what is answered is never below where
the last batch ended, never without a partition that was there, and never empty.
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
    """How far a stream could go now."""

    begin: Offsets
    """For each partition of `end` where the next batch begins, if it is not the start: behind what
    is lost, and 0 where another topic has the name now."""
    end: StreamOffset
    losses: list[str]
    """What is not there any more although it was not read, one line each."""


def available_offsets(start: StreamOffset, ranges: PartitionRanges) -> AvailableOffsets:
    """Return how far a stream could go that has come to `start`.

    A partition whose leader does not answer, or that is missing from the answer, stays where it is.
    """
    return _available_at_once(start, ranges) or _available_one_by_one(start, ranges)


def _available_at_once(start: StreamOffset, ranges: PartitionRanges) -> AvailableOffsets | None:
    """Return it if all that was there is there and nothing is lost or new, `None` otherwise.

    That is what nearly every look finds, several times a second, so there is no step of Python for
    each partition.
    """
    places = sorted(ranges)
    if not places or list(ranges) != places or list(start.offsets) != places:
        return None
    topic_ids, begins_at, ends_at, _, known = zip(*ranges.values(), strict=True)
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
    """Return it whatever has become of partitions and topics."""
    ids = dict(start.topic_ids)
    found = {at.topic: bounds.topic_id for at, bounds in ranges.items()}
    losses = _topic_losses(start, ranges, found)
    anew = {topic for topic, topic_id in found.items() if ids.get(topic, topic_id) != topic_id}
    begins = {at: offset for at, offset in start.offsets.items() if at.topic not in anew}
    ends = dict(begins)
    for at, bounds in ranges.items():
        topic_id, begins_at, ends_at, _, is_known = bounds
        if not is_known and at.topic not in anew:
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
    """Return how far a batch goes that may read so many of all units that are there.

    Each backlogged partition moves by one offset at least, and none beyond its end.
    """
    if numerator >= denominator:
        return end
    offsets = advance(begin, end.offsets, numerator=numerator, denominator=denominator)
    return StreamOffset(offsets, end.topic_ids)


def within(position: StreamOffset, target: StreamOffset, start: StreamOffset) -> StreamOffset:
    """Return a position that goes nowhere beyond a target; partitions born later stay out.

    Nothing goes below where the stream is.
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


def bytes_between(begin: Offsets, end: Offsets, ranges: PartitionRanges) -> int:
    """Return about how many bytes lie between, as if all records of a partition were as large."""
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
    """Return what lies between two positions; it is the same whenever the same is asked.

    A partition that is new, or whose topic is another one by now, is read from 0. One that would go
    back has nothing: after a crash in its first batch, a stream that begins at the end asks so.
    """
    found: list[Slice] = []
    for at, limit in end.offsets.items():
        topic_id = end.topic_ids[at.topic]
        is_same = start.topic_ids.get(at.topic) == topic_id
        begin = start.offsets.get(at, 0) if is_same else 0
        if limit > begin:
            found.append(Slice(at.topic, topic_id, at.partition, begin, limit))
    return found


def size_between(begin: Offsets, end: StreamOffset) -> int:
    """Return how many offsets a batch has."""
    return backlog(begin, end.offsets)
