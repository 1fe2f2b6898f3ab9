"""Lag and metrics of a streaming query, from its progress reports.

Pure: no clock, no I/O, no pyspark. Spark accepts no metrics from a Python source, but its progress
reports hold the offsets, and what the source reports beside the latest ones.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.read.offset_ranges import IDS, METRICS

_RESERVED: Final = "@"
"""First character of keys that are no topics."""


def lag(progress: Any) -> dict[TopicPartition, int]:  # noqa: ANN401 (an object of pyspark, or JSON)
    """Return the unread offsets of each partition at the end of a batch.

    Args:
        progress: `query.lastProgress`, an element of `query.recentProgress`, or its JSON.
    """
    behind: dict[TopicPartition, int] = {}
    for source in _sources(progress):
        ends, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        for at, offset in latest.items():
            behind[at] = behind.get(at, 0) + max(offset - ends.get(at, 0), 0)
    return behind


def metrics(progress: Any) -> dict[str, float]:  # noqa: ANN401 (as above)
    """Return the metrics of the tidelog sources of a query, after one of its batches.

    - `minOffsetsBehindLatest`, `maxOffsetsBehindLatest`, `avgOffsetsBehindLatest`: unread offsets
      of a partition, as Spark's Kafka source reports them.
    - `estimatedTotalBytesBehindLatest`: unread bytes on disk, by the mean size of the records.
    - `inputRows`: rows that Spark read for the batch, twice if the sink used it twice.
    - `estimatedInputBytes`: bytes on disk of the last batch with records, estimated likewise.
    - `dataLosses`: losses that `failOnDataLoss=false` passed over since the start of the query, as
      far as its planner found them; tasks log theirs.

    It is empty if no source of the query is a tidelog source that has reported its latest offsets.

    Args:
        progress: `query.lastProgress`, an element of `query.recentProgress`, or its JSON.
    """
    behind = list(lag(progress).values())
    if not behind:
        return {}
    found = {
        "minOffsetsBehindLatest": float(min(behind)),
        "maxOffsetsBehindLatest": float(max(behind)),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
        "estimatedTotalBytesBehindLatest": 0.0,
        "inputRows": 0.0,
        "estimatedInputBytes": 0.0,
        "dataLosses": 0.0,
    }
    for source in _sources(progress):
        latest = _json(source.get("latestOffset"))
        if not _is_ours(latest):
            continue
        reported: Mapping[str, float] = latest.get(METRICS, {})
        found["inputRows"] += source.get("numInputRows", 0)
        found["estimatedInputBytes"] += reported.get("batchBytes", 0)
        found["estimatedTotalBytesBehindLatest"] += reported.get("bytesBehindLatest", 0)
        found["dataLosses"] += reported.get("dataLosses", 0)
    return found


def _sources(progress: Any) -> list[Mapping[str, Any]]:  # noqa: ANN401 (as above)
    text = progress if isinstance(progress, str) else getattr(progress, "json", None)
    found: Any = json.loads(text) if isinstance(text, str) else progress
    return cast("list[Mapping[str, Any]]", found["sources"])


def _json(found: object) -> Any:  # noqa: ANN401 (any JSON)
    return json.loads(found) if isinstance(found, str) else found


def _is_ours(found: object) -> bool:
    return isinstance(found, dict) and IDS in found


def _offsets(found: object) -> dict[TopicPartition, int]:
    """Return the offsets of a progress report; none if another source wrote them."""
    found = _json(found)
    if not _is_ours(found):
        return {}
    by_topic = cast("dict[str, dict[str, int]]", found)
    return {
        TopicPartition(topic, int(number)): offset
        for topic, by_number in by_topic.items()
        if not topic.startswith(_RESERVED)
        for number, offset in by_number.items()
    }
