"""Plan of a batch: the offset ranges, fixed once when Spark plans the query.

Shell: fetches the offsets of partitions, and retries while a leader does not answer.
"""

import logging
import time

from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.connection.cluster_client import BlockingClusterClient
from tidelog.spark_connector.connection.journals import not_there
from tidelog.spark_connector.read.data_loss import lost
from tidelog.spark_connector.read.offset_ranges import Slice, split
from tidelog.spark_connector.read.partition_bounds import PartitionRanges, look, missing
from tidelog.spark_connector.read.read_options import ReadOptions
from tidelog.spark_connector.read.starting_offsets import ending_offsets, starting_offsets
from tidelog.wire.errors import ConfigError, LeaderNotAvailableError, TidelogError

_log = logging.getLogger(__name__)


def plan(cluster: BlockingClusterClient, options: ReadOptions) -> list[Slice]:
    """Return the offset ranges of the tasks of a batch; none if there is nothing to read.

    Raises:
        ConfigError: A range ends before it begins, or the options do not fit the partitions.
        DataLossError: Requested records are gone, and `failOnDataLoss` is true.
        UnknownTopicError: A topic does not exist.
        ConnectError: No broker could be reached within `client.connect.timeout.ms`; one line.
        TidelogError: No broker answered.
    """
    for line in options.ignored:
        _log.warning("%s", line)
    cluster.reach()
    ranges = known_ranges(cluster, options)
    now_ms = int(time.time() * 1000)
    start = starting_offsets(
        cluster, options.starting, ranges, strategy=options.starting_strategy, now_ms=now_ms
    )
    end = ending_offsets(cluster, options.ending, ranges, now_ms=now_ms)
    slices: list[Slice] = []
    for at, bounds in ranges.items():
        begin = start[at]
        if begin > end[at]:
            raise ConfigError(
                f"{at.topic}/{at.partition} would begin at {begin} and end before it, at {end[at]};"
                f" move {options.starting.option} or {options.ending.option}"
            )
        if begin < bounds.start:
            if options.fail_on_data_loss:
                raise lost(
                    f"{at.topic}/{at.partition}: offsets [{begin}, {bounds.start}) are gone: the"
                    f" log begins at {bounds.start}"
                )
            begin = min(bounds.start, end[at])
        slices.append(bounds.slice(at, begin, end[at]))
    return split(
        slices,
        records_max=options.max_records_per_partition,
        min_partitions=options.min_partitions,
    )


def known_ranges(cluster: BlockingClusterClient, options: ReadOptions) -> PartitionRanges:
    """Return the offsets of all selected partitions.

    Raises:
        UnknownTopicError: A named topic, or that for dead letters, does not exist.
        UnknownQueueError: A queue does not exist.
        ConfigError: No topic name matches the pattern, or the topic for dead letters is selected.
        LeaderNotAvailableError: The leader of a partition does not answer.
        TidelogError: No broker answered.
    """
    tries = options.retry_count
    while True:
        ranges = look(cluster, options.selection)
        gone = missing(options.selection, ranges)
        silent = [at for at, bounds in ranges.items() if not bounds.is_known]
        if not gone and not silent:
            break
        if not tries:
            raise _unknown(gone, silent)
        tries -= 1
        time.sleep(options.retry_interval_ms / 1000)
    if not ranges:
        raise ConfigError(f"there are no {options.selection}")
    _check_dead_letters(cluster, options.values.dead_letter_topic, ranges)
    return ranges


def _check_dead_letters(
    cluster: BlockingClusterClient, topic: str | None, ranges: PartitionRanges
) -> None:
    if topic is None:
        return
    if any(at.topic == topic for at in ranges):
        raise ConfigError(f"value.deadLetterTopic {topic!r} is read itself; name another topic")
    cluster.retry(lambda: cluster.topic(topic))


def _unknown(gone: list[str], silent: list[TopicPartition]) -> TidelogError:
    if gone:
        return not_there(gone[0])
    topic, partition = silent[0]
    return LeaderNotAvailableError(
        f"the end offset of {topic}/{partition} is unknown: its leader does not answer"
    )
