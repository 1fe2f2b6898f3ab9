"""Lag of a streaming query, from its progress reports.

Pure: no clock, no I/O, no pyspark. Spark accepts no metrics from a Python source, but its progress
reports hold the offsets.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.read.offset_ranges import EPOCHS, GROUP, IDS


def lag(progress: Any) -> dict[TopicPartition, int]:  # noqa: ANN401 (an object of pyspark, or JSON)
    """Return the unread offsets of each partition at the end of a batch.

    Args:
        progress: `query.lastProgress`, an element of `query.recentProgress`, or its JSON.
    """
    text = progress if isinstance(progress, str) else getattr(progress, "json", None)
    found: Any = json.loads(text) if isinstance(text, str) else progress
    behind: dict[TopicPartition, int] = {}
    for source in cast("Mapping[str, list[Mapping[str, Any]]]", found)["sources"]:
        ends, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        for at, offset in latest.items():
            behind[at] = behind.get(at, 0) + max(offset - ends.get(at, 0), 0)
    return behind


def _offsets(found: object) -> dict[TopicPartition, int]:
    """Return the offsets of a progress report; none if another source wrote them."""
    if isinstance(found, str):
        found = json.loads(found)
    if not isinstance(found, dict) or IDS not in found:
        return {}
    by_topic = cast("dict[str, dict[str, int]]", found)
    return {
        TopicPartition(topic, int(number)): offset
        for topic, by_number in by_topic.items()
        if topic not in {IDS, EPOCHS, GROUP}
        for number, offset in by_number.items()
    }
