"""What is left of the oldest message of a queue."""

from tidelog.broker.queues.loss_alerts.expiry_forecast import MessageLoss, OldestMessage, loss_of
from tidelog.logstore.config import LogConfig
from tidelog.logstore.retention.disk_retention import DiskOutlook
from tidelog.logstore.retention.retention import ActiveFacts, LogFacts

NOW_MS = 1_700_000_000_000
LOG = LogFacts([], ActiveFacts(0, 10, 50, None))
ENDLESS = LogConfig(retention_ms=None)


def loss(
    sent_ms: int,
    config: LogConfig = ENDLESS,
    *,
    queue_ms: int | None = None,
    disk_bytes: int | None = None,
) -> MessageLoss:
    """Return what is left of a message that was sent so long before now (negative)."""
    disk = None if disk_bytes is None else DiskOutlook([LOG], bytes_max=disk_bytes)
    oldest = OldestMessage(0, NOW_MS + sent_ms)
    return loss_of(oldest, LOG, config, queue_retention_ms=queue_ms, disk=disk, now_ms=NOW_MS)


def test_what_nothing_limits_stays() -> None:
    assert loss(-(10**12)) == MessageLoss(None, None, None, False)


def test_the_shorter_age_counts() -> None:
    week = LogConfig(retention_ms=7000)

    assert loss(-1000, week, queue_ms=4000) == MessageLoss(3000)
    assert loss(-1000, week, queue_ms=14_000) == MessageLoss(6000)
    assert loss(-1000, week) == MessageLoss(6000)
    assert loss(-1000, queue_ms=4000) == MessageLoss(3000)


def test_it_is_soon_when_less_than_a_tenth_is_left_of_any_limit() -> None:
    assert loss(-900, queue_ms=1000) == MessageLoss(100)
    assert loss(-901, queue_ms=1000) == MessageLoss(99, is_soon=True)
    assert loss(-901, LogConfig(retention_ms=1000), queue_ms=1001).is_soon
    assert loss(0, disk_bytes=55) == MessageLoss(in_disk_bytes=5, is_soon=True)
    assert loss(0, disk_bytes=56) == MessageLoss(in_disk_bytes=6)


def test_what_is_due_goes_at_any_moment() -> None:
    assert loss(-2000, queue_ms=1000) == MessageLoss(0, is_soon=True)


def test_sizes_count_on_their_own() -> None:
    by_size = LogConfig(retention_ms=None, retention_bytes=500)

    assert loss(0, by_size, disk_bytes=100) == MessageLoss(None, 500, 50)
