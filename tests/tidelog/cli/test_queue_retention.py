"""When the oldest message of a queue goes, and what is said of that."""

import pytest

from client.queue_counting import DescribedQueue, MessageCounts
from tidelog.cli.queue_retention import MessageLoss, loss_of, loss_text

DAY_MS = 86_400_000
SENT_MS = 1_700_000_000_000


def queue(retention: str, oldest_ms: int | None = SENT_MS) -> DescribedQueue:
    counts = MessageCounts(1, 0, 0, 0, oldest_ms)
    config = {"retention_ms": retention}
    return DescribedQueue("billing", b"", "orders", b"", False, 0, config, [], [], [], counts)


@pytest.mark.parametrize(
    ("by_queue", "by_topic", "days", "reason"),
    [
        ("4d", "7d", 4, "the queue keeps messages for 4d"),
        ("14d", "7d", 7, "topic orders keeps records for 7d"),
        ("unlimited", "7d", 7, "topic orders keeps records for 7d"),
        ("4d", "unlimited", 4, "the queue keeps messages for 4d"),
    ],
)
def test_the_shorter_retention_counts(by_queue: str, by_topic: str, days: int, reason: str) -> None:
    loss = loss_of(queue(by_queue), {"retention_ms": by_topic}, now_ms=SENT_MS)

    assert loss == MessageLoss(SENT_MS + days * DAY_MS, False, reason)


def test_without_messages_or_limits_nothing_goes() -> None:
    assert loss_of(queue("4d", None), {"retention_ms": "7d"}, now_ms=SENT_MS) is None
    assert loss_of(queue("unlimited"), {"retention_ms": "unlimited"}, now_ms=SENT_MS) is None


def test_it_is_soon_when_nine_tenths_of_the_time_are_over() -> None:
    config = {"retention_ms": "10d"}

    before = loss_of(queue("unlimited"), config, now_ms=SENT_MS + 9 * DAY_MS)
    after = loss_of(queue("unlimited"), config, now_ms=SENT_MS + 9 * DAY_MS + 1)

    assert before is not None
    assert after is not None
    assert (before.is_soon, after.is_soon) == (False, True)


def test_people_are_told_when_and_why() -> None:
    config = {"retention_ms": "7d", "retention_bytes": "10GiB"}

    loss = loss_of(queue("unlimited"), config, now_ms=SENT_MS)

    assert loss is not None
    assert loss_text(loss, now_ms=SENT_MS + 5 * DAY_MS + 3_600_000) == (
        "in 1 d 23 h (topic orders keeps records for 7d;"
        " sooner if a partition of the topic is larger than 10GiB)"
    )
    assert loss_text(loss, now_ms=SENT_MS + 8 * DAY_MS).startswith("at any moment (topic")
