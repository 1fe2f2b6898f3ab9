"""The output of `tidelog topic usage`, as text and JSON."""

from collections.abc import Callable, Sequence

from tidelog.cli.output.tables import print_fields, print_table, size_text, total_text
from tidelog.cli.output.times import moment_text
from tidelog.wire.messages.topic_usage import PartitionUsage, TopicUsage

_COLUMNS = ("SIZE", "SEGMENTS", "RECORDS", "OLDEST", "BYTES/DAY", "RECORDS/DAY", "DIRTY")
_NUMBERS = ("PARTITION", "PARTITIONS", "LEADER", *(each for each in _COLUMNS if each != "OLDEST"))


def usage_as_json(topic: TopicUsage) -> dict[str, object]:
    """Return the disk usage of a topic, by partition and in total.

    The totals are those of the partitions whose leaders answered; null if there are none.
    """
    return {
        "name": topic.name,
        "topic_id": topic.topic_id.hex(),
        "partition_count": topic.partition_count,
        "replication_factor": topic.replication_factor,
        "size_bytes": _sum_known(topic, lambda each: each.size_bytes),
        "segment_count": _sum_known(topic, lambda each: each.segment_count),
        "oldest_ms": _oldest_ms(topic.partitions),
        "ingest_bytes_per_day": _sum_known(topic, lambda each: each.ingest_bytes_per_day),
        "ingest_offsets_per_day": _sum_known(topic, lambda each: each.ingest_offsets_per_day),
        "dirty_ratio": _dirty_ratio(topic.partitions),
        "partitions": [
            {name: getattr(each, name) for name in PartitionUsage.__struct_fields__}
            for each in topic.partitions
        ],
    }


def print_usages(topics: Sequence[TopicUsage]) -> None:
    """Print one line for each topic."""
    rows = [(topic.name, topic.partition_count, *_sums(topic)) for topic in topics]
    print_table(["TOPIC", "PARTITIONS", *_COLUMNS], rows, right=_NUMBERS)


def print_usage(topic: TopicUsage) -> None:
    """Print a line for each partition of a topic, and a line of totals."""
    facts: dict[str, object] = {"topic": topic.name, "replicas": topic.replication_factor}
    missing = topic.partition_count - len(topic.partitions)
    if missing:
        facts["no answer"] = f"from the leaders of {missing:,} partitions"
    print_fields(facts)
    rows: list[tuple[object, ...]] = [
        (
            each.partition,
            each.leader_id,
            size_text(each.size_bytes),
            each.segment_count,
            each.high_watermark - each.log_start_offset,
            _moment(each.oldest_ms),
            _size(each.ingest_bytes_per_day),
            each.ingest_offsets_per_day,
            _percent(each.dirty_ratio),
        )
        for each in topic.partitions
    ]
    if len(rows) != 1:
        rows.append(("all", None, *_sums(topic)))
    print_table(["PARTITION", "LEADER", *_COLUMNS], rows, right=_NUMBERS)


def _sums(topic: TopicUsage) -> tuple[object, ...]:
    partitions = topic.partitions
    return (
        total_text(_counts(topic, lambda each: each.size_bytes), size_text),
        total_text(_counts(topic, lambda each: each.segment_count)),
        total_text(_counts(topic, lambda each: each.high_watermark - each.log_start_offset)),
        _moment(_oldest_ms(partitions)),
        _size(_sum_known(topic, lambda each: each.ingest_bytes_per_day)),
        _sum_known(topic, lambda each: each.ingest_offsets_per_day),
        _percent(_dirty_ratio(partitions)),
    )


def _counts(topic: TopicUsage, count: Callable[[PartitionUsage], int]) -> list[int | None]:
    """Return a count of each partition; `None` for those whose leaders did not answer."""
    missing = topic.partition_count - len(topic.partitions)
    return [*map(count, topic.partitions), *[None] * missing]


def _oldest_ms(partitions: Sequence[PartitionUsage]) -> int | None:
    return min((each.oldest_ms for each in partitions if each.oldest_ms is not None), default=None)


def _sum_known(topic: TopicUsage, growth: Callable[[PartitionUsage], int | None]) -> int | None:
    """Return the sum of the known values; idle partitions have none. Return `None` without any."""
    known = [value for each in topic.partitions if (value := growth(each)) is not None]
    return sum(known) if known else None


def _dirty_ratio(partitions: Sequence[PartitionUsage]) -> float | None:
    """Return the ratio of the dirtiest partition, which is compacted next."""
    return max(
        (each.dirty_ratio for each in partitions if each.dirty_ratio is not None), default=None
    )


def _moment(unix_ms: int | None) -> str | None:
    return None if unix_ms is None else moment_text(unix_ms)


def _size(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else size_text(size_bytes)


def _percent(ratio: float | None) -> str | None:
    return None if ratio is None else f"{ratio:.0%}"
