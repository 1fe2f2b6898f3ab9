"""The assignors: functions from members and their subscriptions to a target assignment.

Pure functions: no clock, no I/O. An assignor gets members with their topics and their former
partitions, and returns the partitions of each from now on. Every partition with a subscriber goes
to exactly one member that subscribes to its topic. The same arguments give the same result, and the
order of members counts: it is the order in which they joined.

- `uniform`: numbers of partitions differ by one at most if all members want the same topics, and
  otherwise by as little as is possible at all (`coordinator.groups.balanced_assignment`); no
  partition moves without need.
- `range`: each topic is cut into ranges, in the order of members. Partitions of the same number go
  to the same member in all topics which have the same number of partitions and the same readers.
  Partitions move more often than with `uniform`.
"""

from collections.abc import Mapping, Sequence

import msgspec

from tidelog.coordinator.groups.balanced_assignment import balance
from tidelog.coordinator.groups.partitions import Partition

UNIFORM = "uniform"
RANGE = "range"
ASSIGNORS = (RANGE, UNIFORM)


class Reader(msgspec.Struct, frozen=True):
    """A member as an assignor sees it."""

    topic_ids: Sequence[bytes]
    """Topic ids of its subscription, sorted."""
    held: Sequence[Partition]
    """Its former partitions."""


def assign(
    assignor: str, readers: Sequence[Reader], partition_counts: Mapping[bytes, int]
) -> list[list[Partition]]:
    """Return the partitions of each reader, in the order of readers.

    Args:
        assignor: One of `ASSIGNORS`.
        readers: In the order in which they joined.
        partition_counts: By topic id; other topics have no partitions.
    """
    if not readers:
        return []
    if assignor == RANGE:
        return _range(readers, partition_counts)
    assert assignor == UNIFORM, f"{assignor!r} is none of {ASSIGNORS}"
    first = readers[0].topic_ids
    if all(reader.topic_ids == first for reader in readers):
        return _uniform(readers, partition_counts)
    return balance(
        [reader.topic_ids for reader in readers],
        [reader.held for reader in readers],
        partition_counts,
    )


def _uniform(
    readers: Sequence[Reader], partition_counts: Mapping[bytes, int]
) -> list[list[Partition]]:
    """Assign partitions to readers that all want the same topics."""
    topic_ids = [topic_id for topic_id in readers[0].topic_ids if topic_id in partition_counts]
    # By number before topic: a reader that loses partitions loses some of every topic, so that no
    # busy topic ends up with one member.
    partitions = [
        (topic_id, number)
        for number in range(max((partition_counts[topic_id] for topic_id in topic_ids), default=0))
        for topic_id in topic_ids
        if number < partition_counts[topic_id]
    ]
    place = {partition: place for place, partition in enumerate(partitions)}
    assigned: list[list[Partition]] = [
        sorted((held for held in reader.held if held in place), key=place.__getitem__)
        for reader in readers
    ]
    least, extra_count = divmod(len(partitions), len(readers))
    # The readers with most partitions may keep one more: fewest moves.
    by_held = sorted(range(len(readers)), key=lambda index: -len(assigned[index]))
    room: list[int] = []
    for rank, index in enumerate(by_held):
        quota = least + (rank < extra_count)
        del assigned[index][quota:]
        if len(assigned[index]) < quota:
            room.append(index)
    kept = {partition for held in assigned for partition in held}
    free = (partition for partition in partitions if partition not in kept)
    quotas = {index: least + (rank < extra_count) for rank, index in enumerate(by_held)}
    room.sort()
    while room:
        # One for each in turn, so that a topic is spread over many.
        for index in room:
            assigned[index].append(next(free))
        room = [index for index in room if len(assigned[index]) < quotas[index]]
    return assigned


def _range(
    readers: Sequence[Reader], partition_counts: Mapping[bytes, int]
) -> list[list[Partition]]:
    assigned: list[list[Partition]] = [[] for _ in readers]
    subscribers: dict[bytes, list[int]] = {}
    for index, reader in enumerate(readers):
        for topic_id in reader.topic_ids:
            subscribers.setdefault(topic_id, []).append(index)
    for topic_id in sorted(subscribers):
        indexes = subscribers[topic_id]
        least, extra_count = divmod(partition_counts.get(topic_id, 0), len(indexes))
        start = 0
        for rank, index in enumerate(indexes):
            end = start + least + (rank < extra_count)
            assigned[index].extend((topic_id, number) for number in range(start, end))
            start = end
    return assigned
