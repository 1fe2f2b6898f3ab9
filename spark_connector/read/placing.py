"""From places as people give them to an offset of each partition.

Shell: asks the leaders for offsets of times; the rest decides. All places are made offsets when a
query is planned, never by its tasks, so a failure names the range, and a task that is run again
reads the same.
"""

from collections.abc import Mapping

from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.connection.brokers import Brokers
from tidelog.spark_connector.read.extents import Extents
from tidelog.spark_connector.read.offsets import Offsets
from tidelog.spark_connector.read.read_options import EARLIEST, LATEST, Place, Strategy
from tidelog.wire.errors import ConfigError
from tidelog.wire.messages.fetch import OffsetAt, PartitionOffsetAt


def starting_offsets(
    brokers: Brokers, place: Place, extents: Extents, *, strategy: Strategy
) -> Offsets:
    """Return where to begin.

    Raises:
        ConfigError: The place does not name exactly the partitions that are read, or no record is
            as young as a time and the strategy is to fail.
        TidelogError: Nobody could be asked.
    """
    offsets = _resolved(brokers, place, extents)
    late = [at for at, offset in offsets.items() if offset is None]
    if late and strategy == "error":
        raise ConfigError(
            f"{place.option}: {_names(late)} has no record as young as that; give an earlier time,"
            " or set startingOffsetsByTimestampStrategy to latest"
        )
    return {at: extents[at].end if offset is None else offset for at, offset in offsets.items()}


def ending_offsets(brokers: Brokers, place: Place, extents: Extents) -> Offsets:
    """Return where to end; where no record is as young as a time, at the end of the partition.

    Raises:
        ConfigError: The place does not name exactly the partitions that are read, or lies beyond
            the end of one.
        TidelogError: Nobody could be asked.
    """
    offsets = _resolved(brokers, place, extents)
    found = {at: extents[at].end if offset is None else offset for at, offset in offsets.items()}
    for at, offset in found.items():
        if offset > extents[at].end:
            raise ConfigError(
                f"{place.option}: {at.topic}/{at.partition} ends at {extents[at].end}, before"
                f" {offset}"
            )
    return found


def _resolved(brokers: Brokers, place: Place, extents: Extents) -> dict[TopicPartition, int | None]:
    """Return an offset of each partition; `None` where no record is as young as a time."""
    if place.at == "earliest":
        return {at: extent.start for at, extent in extents.items()}
    if place.at == "latest":
        return {at: extent.end for at, extent in extents.items()}
    if place.at == "time":
        return _at_times(brokers, dict.fromkeys(extents, place.time_ms), extents)
    _check_names(place, extents)
    if place.at == "times":
        return _at_times(brokers, place.by_partition, extents)
    by_word = {
        EARLIEST: {at: extent.start for at, extent in extents.items()},
        LATEST: {at: extent.end for at, extent in extents.items()},
    }
    return {
        at: by_word[offset][at] if offset in by_word else offset
        for at, offset in sorted(place.by_partition.items())
    }


def _at_times(
    brokers: Brokers, times: Mapping[TopicPartition, int], extents: Extents
) -> dict[TopicPartition, int | None]:
    questions = {
        at: PartitionOffsetAt(
            extents[at].topic_id, at.partition, int(OffsetAt.TIMESTAMP), times[at]
        )
        for at in extents
    }
    answers = brokers.list_offsets(questions)
    return {at: answers[at].offset for at in extents}


def _check_names(place: Place, extents: Extents) -> None:
    strange = sorted(place.by_partition.keys() - extents.keys())
    if strange:
        raise ConfigError(f"{place.option} names {_names(strange)}, which is not read")
    unnamed = sorted(extents.keys() - place.by_partition.keys())
    if unnamed:
        raise ConfigError(
            f"{place.option} must name every partition that is read; {_names(unnamed)} is missing"
        )


def _names(partitions: list[TopicPartition]) -> str:
    return ", ".join(f"{at.topic}/{at.partition}" for at in partitions[:5])
