"""Resolution of start and end options to an offset of each partition.

Shell: asks leaders for the offsets of times; the rest is pure. The driver resolves all offsets when
Spark plans a query, never a task. So a failure names the range, and a repeated task reads the same.
"""

from collections.abc import Mapping

from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.connection.cluster_client import BlockingClusterClient
from tidelog.spark_connector.read.offset_ranges import Offsets
from tidelog.spark_connector.read.partition_bounds import PartitionRanges
from tidelog.spark_connector.read.read_options import EARLIEST, LATEST, OffsetLimit, Strategy
from tidelog.wire.errors import ConfigError
from tidelog.wire.messages.offset_ranges import OffsetQuery


def starting_offsets(
    cluster: BlockingClusterClient,
    place: OffsetLimit,
    ranges: PartitionRanges,
    *,
    strategy: Strategy,
    now_ms: int,
) -> Offsets:
    """Return the starting offset of each partition.

    A partition without records begins at its end, also with a time. `now_ms` is the time of the
    driver in Unix milliseconds, from which ages count.

    Raises:
        ConfigError: The option does not name exactly the selected partitions, or no record is as
            young as a time and the strategy is to fail.
        TidelogError: No broker answered.
    """
    offsets = _resolved(cluster, place, ranges, now_ms)
    late = [
        at for at, offset in offsets.items() if offset is None and ranges[at].start < ranges[at].end
    ]
    if late and strategy == "error":
        raise ConfigError(
            f"{place.option}: {_names(late)} has no record as young as that; give an earlier time,"
            " or set startingOffsetsByTimestampStrategy to latest"
        )
    return {at: ranges[at].end if offset is None else offset for at, offset in offsets.items()}


def ending_offsets(
    cluster: BlockingClusterClient, place: OffsetLimit, ranges: PartitionRanges, *, now_ms: int
) -> Offsets:
    """Return the ending offset of each partition: its end if no record is as young as a time.

    With one offset for all partitions, a partition that begins later ends where it begins.

    Raises:
        ConfigError: The option does not name exactly the selected partitions, or an offset is above
            the end of its partition.
        TidelogError: No broker answered.
    """
    offsets = _resolved(cluster, place, ranges, now_ms)
    found = {at: ranges[at].end if offset is None else offset for at, offset in offsets.items()}
    if place.at == "offset":
        return {at: max(offset, ranges[at].start) for at, offset in found.items()}
    for at, offset in found.items():
        if offset > ranges[at].end:
            raise ConfigError(
                f"{place.option}: {at.topic}/{at.partition} ends at {ranges[at].end}, before"
                f" {offset}"
            )
    return found


def _resolved(
    cluster: BlockingClusterClient, place: OffsetLimit, ranges: PartitionRanges, now_ms: int, /
) -> dict[TopicPartition, int | None]:
    """Return an offset of each partition; `None` if no record is as young as a time."""
    if place.at == "earliest":
        return {at: bounds.start for at, bounds in ranges.items()}
    if place.at == "latest":
        return {at: bounds.end for at, bounds in ranges.items()}
    if place.at == "offset":
        return {at: min(place.offset, bounds.end) for at, bounds in ranges.items()}
    if place.at == "time":
        return _at_times(cluster, dict.fromkeys(ranges, place.time.at(now_ms)), ranges)
    _check_names(place, ranges)
    if place.at == "times":
        times = {at: moment.at(now_ms) for at, moment in place.times.items()}
        return _at_times(cluster, times, ranges)
    by_word = {
        EARLIEST: {at: bounds.start for at, bounds in ranges.items()},
        LATEST: {at: bounds.end for at, bounds in ranges.items()},
    }
    return {
        at: by_word[offset][at] if offset in by_word else offset
        for at, offset in sorted(place.by_partition.items())
    }


def _at_times(
    cluster: BlockingClusterClient, times: Mapping[TopicPartition, int], ranges: PartitionRanges
) -> dict[TopicPartition, int | None]:
    queries = {
        at: OffsetQuery(ranges[at].topic_id, at.partition, at_timestamp_ms=times[at])
        for at in ranges
    }
    answers = cluster.list_offsets(queries)
    found = {at: answers[at].offset for at in ranges}
    # A record may have arrived after the ends were requested.
    return {
        at: None if offset is None else min(offset, ranges[at].end) for at, offset in found.items()
    }


def _check_names(place: OffsetLimit, ranges: PartitionRanges) -> None:
    named = place.by_partition.keys() | place.times.keys()
    strange = sorted(named - ranges.keys())
    if strange:
        raise ConfigError(f"{place.option} names {_names(strange)}, which is not read")
    unnamed = sorted(ranges.keys() - named)
    if unnamed:
        raise ConfigError(
            f"{place.option} must name every partition that is read; {_names(unnamed)} is missing"
        )


def _names(partitions: list[TopicPartition]) -> str:
    return ", ".join(f"{at.topic}/{at.partition}" for at in partitions[:5])
