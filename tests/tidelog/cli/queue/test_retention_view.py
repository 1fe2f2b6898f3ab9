"""When the oldest message of a queue goes, as people are told."""

import pytest

from tidelog.cli.queue.retention_view import loss_text
from tidelog.client.admin.queue_counts import DescribedQueue, MessageCounts

DAY_MS = 86_400_000


def queue(
    retention: str,
    in_ms: int | None = None,
    in_bytes: int | None = None,
    *,
    in_disk_bytes: int | None = None,
) -> DescribedQueue:
    """Return a queue whose oldest message goes then."""
    counts = MessageCounts(1, 0, 0, 0, 1_700_000_000_000, in_ms, in_bytes, in_disk_bytes)
    config = {"retention_ms": retention}
    return DescribedQueue("billing", b"", "orders", b"", False, 0, config, [], [], [], counts)


@pytest.mark.parametrize(
    ("by_queue", "by_topic", "reason"),
    [
        ("4d", "7d", "the queue keeps messages for 4d"),
        ("14d", "7d", "topic orders keeps records for 7d"),
        ("unlimited", "7d", "topic orders keeps records for 7d"),
        ("4d", "unlimited", "the queue keeps messages for 4d"),
    ],
)
def test_the_shorter_retention_is_the_reason(by_queue: str, by_topic: str, reason: str) -> None:
    text = loss_text(queue(by_queue, 2 * DAY_MS + 1), {"retention_ms": by_topic})

    assert text == f"in 2 d ({reason})"


def test_without_messages_or_limits_nothing_goes() -> None:
    assert loss_text(queue("4d"), {"retention_ms": "7d"}) is None
    unknown = DescribedQueue("billing", b"", "orders", b"", False, 0, {}, [], [], [], None)
    assert loss_text(unknown, {}) is None


def test_people_are_told_when_and_why() -> None:
    config = {"retention_ms": "7d", "retention_bytes": "10GiB"}

    assert loss_text(queue("unlimited", DAY_MS, 3 << 30, in_disk_bytes=1 << 20), config) == (
        "in 1 d (topic orders keeps records for 7d),"
        " or after 3.0 GiB more in a partition of topic orders (retention_bytes of 10GiB),"
        " or after 1.0 MiB more in all topics of a broker (log_retention_disk_bytes)"
    )
    assert loss_text(queue("4d", 0), config) == "at any moment (the queue keeps messages for 4d)"
    assert loss_text(queue("unlimited", None, 0), {}) == (
        "after 0 B more in a partition of topic orders (retention_bytes)"
    )
