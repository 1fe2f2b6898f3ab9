"""The records of consumer groups, as a golden file: `python -m tests.golden.group_records`.

The metadata log contains them as well; see `tests.golden.metadata_records`.
"""

from pathlib import Path

import msgpack
import msgspec

from tidelog.coordinator.groups.records import (
    AssignmentChanged,
    GroupAltered,
    GroupDeleted,
    GroupRecord,
    GroupTouched,
    MemberJoined,
    MemberLeft,
    MemberTarget,
    OffsetsCommitted,
    OffsetsReset,
    StaticMemberLeft,
    StaticMemberReplaced,
    SubscriptionChanged,
    TargetComputed,
    TopicForgotten,
)
from tidelog.wire.messages.groups import PartitionCommit, Subscription, TopicPartitions

FILE = Path(__file__).parent / "group_records_v1.hex"
TOPIC_ID = bytes(range(0xA0, 0xB0))
COMMIT = PartitionCommit(TOPIC_ID, 3, 1003, 7, "half")

RECORDS: list[GroupRecord] = [
    MemberJoined(
        "billing", 5, "c41d", Subscription(["orders"]), 1, "range", 60_000, "one", 17, "example"
    ),
    SubscriptionChanged("billing", 6, "c41d", Subscription([], "ord.*"), 2, "uniform", 300_000),
    StaticMemberReplaced("billing", "c41d", "d52e", 18, "example"),
    StaticMemberLeft("billing", "d52e"),
    MemberLeft("billing", 7, "d52e", 1_700_000_000_000),
    GroupTouched("billing", 8),
    TargetComputed(
        "billing",
        8,
        "uniform",
        {TOPIC_ID: "orders"},
        [MemberTarget("c41d", [TopicPartitions(TOPIC_ID, [0, 1, 300])])],
    ),
    AssignmentChanged(
        "billing",
        "c41d",
        8,
        [TopicPartitions(TOPIC_ID, [0])],
        [TopicPartitions(TOPIC_ID, [1])],
        [TopicPartitions(TOPIC_ID, [2])],
    ),
    OffsetsCommitted("billing", "c41d", 4, 1_700_000_000_000, [COMMIT]),
    OffsetsReset("billing", 1_700_000_000_000, [COMMIT, PartitionCommit(TOPIC_ID, 4, 0)]),
    TopicForgotten(TOPIC_ID),
    GroupDeleted("billing"),
    GroupAltered("billing", 1_700_000_000_000, {"owner": "billing", "alert_lag_ms": "5min"}),
]


def line(record: GroupRecord) -> str:
    """Return the line of one record."""
    data = msgspec.msgpack.encode(record)
    return f"{data.hex()} {msgpack.unpackb(data)!r}"


if __name__ == "__main__":
    FILE.write_text("".join(f"{line(record)}\n" for record in RECORDS), encoding="utf-8")
