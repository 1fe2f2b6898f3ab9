"""Settlement: the rights of receipts, and the outcome for messages."""

import pytest

from tests.queue_layer.driver import SECOND, TARGET, Driver, offsets_of
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.config.retry_backoff import ExponentialBackoff, FixedBackoff
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.queue_journal import NO_TARGET
from tidelog.wire.messages.queues import SettleAction, Settled, Settlement

FENCED = QueueConfig(require_latest_receipt=True)
FIFO = QueueConfig(is_fifo=True)
HOURS_12 = 12 * 3600 * SECOND

any_queue = pytest.mark.parametrize(
    "config", [QueueConfig(), FENCED, FIFO], ids=["standard", "fenced", "fifo"]
)


def refusals(settled: Settled) -> dict[int, ErrorCode]:
    """Return the error of each message that was refused."""
    assert settled.error is None
    return {
        offset: ErrorCode(refused.error.code)
        for refused in settled.refused
        for offset in offsets_of(refused.runs)
    }


@pytest.mark.statement("q1")
@any_queue
def test_a_deleted_message_is_never_delivered_again(config: QueueConfig) -> None:
    driver = Driver(config, records=3)
    received = driver.take()

    assert refusals(driver.delete(received, 1)) == {}

    driver.wait(30 * SECOND)
    assert driver.offsets() == [0, 2]


@pytest.mark.statement("b11")
@any_queue
def test_deleting_twice_is_success(config: QueueConfig) -> None:
    """Statement 11."""
    driver = Driver(config, records=1)
    received = driver.take()
    driver.delete(received)
    entries = len(driver.journal)

    assert refusals(driver.delete(received)) == {}
    assert len(driver.journal) == entries


@pytest.mark.statement("b77")
def test_a_delete_survives_many_failovers_with_many_holes() -> None:
    """Statement 77: any number of holes."""
    driver = Driver(records=25_000)
    for _ in range(25):
        received = driver.take(1000)
        even = [
            o for run in received.runs for o in range(run.first_offset, run.first_offset + 1000, 2)
        ]
        driver.delete(received, *even)
    for frame in driver.queue.snapshot(now_ms=driver.now_ms):
        driver.append(frame)

    driver.fail_over()

    assert driver.counts() == {"in_flight": 12_500}
    driver.wait(30 * SECOND)
    assert all(offset % 2 for _ in range(12) for offset in driver.offsets(1000))


@pytest.mark.statement("b5")
@any_queue
def test_extending_counts_from_now_on(config: QueueConfig) -> None:
    """Statement 5."""
    driver = Driver(config, records=1)
    received = driver.take(timeout_ms=2 * SECOND)

    for _ in range(10):
        driver.wait(SECOND)
        assert refusals(driver.settle(received, SettleAction.EXTEND, delay_ms=2 * SECOND)) == {}

    assert driver.counts() == {"in_flight": 1}
    driver.wait(2 * SECOND)
    assert driver.counts() == {"visible": 1}


@pytest.mark.statement("b6")
def test_a_message_is_invisible_for_at_most_twelve_hours() -> None:
    """Statement 6."""
    driver = Driver(records=1)
    received = driver.take()
    driver.wait(SECOND)

    refused = driver.settle(received, SettleAction.EXTEND, delay_ms=HOURS_12 - SECOND + 1).refused

    assert [one.error.code for one in refused] == [ErrorCode.INVALID_REQUEST]
    assert "43200 seconds" in refused[0].error.message
    settled = driver.settle(received, SettleAction.EXTEND, delay_ms=HOURS_12 - SECOND)
    assert refusals(settled) == {}


def test_a_message_becomes_visible_at_once_also_after_twelve_hours() -> None:
    driver = Driver(records=1)
    received = driver.take()
    assert refusals(driver.settle(received, SettleAction.EXTEND, delay_ms=HOURS_12)) == {}
    driver.wait(HOURS_12)

    assert refusals(driver.settle(received, SettleAction.EXTEND, delay_ms=0)) == {}
    driver.wait(1)
    refused = driver.settle(received, SettleAction.EXTEND, delay_ms=0).refused

    assert [one.error.code for one in refused] == [ErrorCode.INVALID_REQUEST]


@pytest.mark.statement("b7")
@pytest.mark.parametrize("config", [QueueConfig(), FENCED], ids=["standard", "fenced"])
def test_the_last_receipt_extends_a_message_after_its_visibility_timeout(
    config: QueueConfig,
) -> None:
    """Statement 7."""
    driver = Driver(config, records=1)
    received = driver.take()
    driver.wait(40 * SECOND)

    assert refusals(driver.settle(received, SettleAction.EXTEND, delay_ms=5 * SECOND)) == {}

    assert driver.counts() == {"in_flight": 1}


@pytest.mark.statement("b8")
@any_queue
@pytest.mark.parametrize(
    "action", [action for action in SettleAction if action is not SettleAction.DELETE]
)
def test_an_older_receipt_cannot_extend_or_release_a_message_received_again(
    config: QueueConfig, action: SettleAction
) -> None:
    """Statement 8: unlike SQS, which allows it."""
    driver = Driver(config, records=1)
    old = driver.take()
    driver.wait(30 * SECOND)
    driver.take()

    settled = driver.settle(old, action, delay_ms=0)

    assert refusals(settled) == {0: ErrorCode.RECEIPT_EXPIRED}
    assert driver.counts() == {"in_flight": 1}


@pytest.mark.statement("b9")
@pytest.mark.parametrize("config", [QueueConfig(), FENCED], ids=["standard", "fenced"])
def test_the_last_receipt_deletes_a_message_after_its_visibility_timeout(
    config: QueueConfig,
) -> None:
    """Statement 9."""
    driver = Driver(config, records=1)
    received = driver.take()
    driver.wait(40 * SECOND)

    assert refusals(driver.delete(received)) == {}
    assert driver.counts() == {}


@pytest.mark.statement("b10")
def test_an_older_receipt_deletes_a_message_without_fencing() -> None:
    """Statement 10."""
    driver = Driver(records=1)
    old = driver.take()
    driver.wait(30 * SECOND)
    new = driver.take()

    assert refusals(driver.delete(old)) == {}
    assert driver.counts() == {}
    assert refusals(driver.delete(new)) == {}


@pytest.mark.statement("b10", "b91")
@pytest.mark.parametrize("config", [FENCED, FIFO], ids=["fenced", "fifo"])
def test_an_older_receipt_deletes_nothing_with_fencing(config: QueueConfig) -> None:
    """Statements 10 and 91."""
    driver = Driver(config, records=1)
    old = driver.take()
    driver.wait(30 * SECOND)
    driver.take()

    assert refusals(driver.delete(old)) == {0: ErrorCode.RECEIPT_EXPIRED}
    assert driver.counts() == {"in_flight": 1}


def test_a_receipt_of_a_fifo_queue_is_valid_during_its_lease() -> None:
    """Statement 28."""
    driver = Driver(FIFO, records=2)
    received = driver.take(2)
    driver.settle(received, SettleAction.EXTEND, 1, delay_ms=60 * SECOND)
    driver.wait(30 * SECOND)

    assert refusals(driver.delete(received)) == {0: ErrorCode.RECEIPT_EXPIRED}
    assert driver.counts() == {"visible": 1}


@pytest.mark.statement("b12")
@any_queue
@pytest.mark.parametrize(
    "action", [SettleAction.EXTEND, SettleAction.RELEASE, SettleAction.REJECT, SettleAction.RETURN]
)
def test_a_deleted_message_accepts_only_a_delete(config: QueueConfig, action: SettleAction) -> None:
    """Statement 12."""
    driver = Driver(config, records=1)
    received = driver.take()
    driver.delete(received)

    settled = driver.settle(received, action, delay_ms=0)

    assert refusals(settled) == {0: ErrorCode.MESSAGE_GONE}


@pytest.mark.statement("b12")
def test_bytes_that_are_no_receipt_are_refused() -> None:
    """Statement 12."""
    driver = Driver(records=1)
    driver.take()

    settlement = Settlement(7, b"garbage", [(0, 1)], SettleAction.DELETE)
    settled = driver.do(driver.queue.settle(settlement, now_ms=driver.now_ms))

    assert settled.error is not None
    assert settled.error.code == ErrorCode.INVALID_RECEIPT


@pytest.mark.statement("b12")
def test_a_receipt_settles_only_its_own_messages() -> None:
    driver = Driver(records=10)
    received = driver.take(3)
    driver.take(3)

    assert refusals(driver.delete(received, 1, 2, 3, 4, 9)) == {
        3: ErrorCode.INVALID_RECEIPT,
        4: ErrorCode.INVALID_RECEIPT,
        9: ErrorCode.INVALID_RECEIPT,
    }
    assert driver.counts() == {"visible": 4, "in_flight": 4}


@pytest.mark.statement("b80")
def test_a_settlement_is_refused_for_some_of_its_messages() -> None:
    driver = Driver(FENCED, records=4)
    received = driver.take(4)
    driver.settle(received, SettleAction.RELEASE, 1, delay_ms=0)
    driver.take(1)
    driver.delete(received, 2)

    settled = driver.settle(received, SettleAction.EXTEND, delay_ms=9 * SECOND)

    assert refusals(settled) == {1: ErrorCode.RECEIPT_EXPIRED, 2: ErrorCode.MESSAGE_GONE}
    driver.wait(8 * SECOND)
    assert driver.counts() == {"in_flight": 3}


@pytest.mark.statement("b85")
@any_queue
def test_a_released_message_is_visible_after_its_delay(config: QueueConfig) -> None:
    """Statement 85: exactly then, for any visibility timeout and backoff."""
    driver = Driver(config, records=2)
    received = driver.take()

    driver.settle(received, SettleAction.RELEASE, 0, delay_ms=0)
    driver.settle(received, SettleAction.RELEASE, 1, delay_ms=90 * SECOND)

    assert driver.counts() == {"visible": 1, "delayed": 1}
    driver.wait(90 * SECOND - 1)
    assert driver.counts() == {"visible": 1, "delayed": 1}
    driver.wait(1)
    assert driver.counts() == {"visible": 2}


@pytest.mark.statement("b85")
def test_a_message_released_without_a_delay_follows_the_retry_backoff() -> None:
    config = QueueConfig(retry_backoff=FixedBackoff((SECOND, 10 * SECOND)))
    driver = Driver(config, records=1)

    for delay_ms in (SECOND, 10 * SECOND, 10 * SECOND):
        driver.settle(driver.take(), SettleAction.RELEASE)
        driver.wait(delay_ms - 1)
        assert driver.counts() == {"delayed": 1}
        driver.wait(1)
        assert driver.counts() == {"visible": 1}


def test_retry_backoff_jitter_spreads_messages_that_failed_together() -> None:
    config = QueueConfig(retry_backoff=ExponentialBackoff(base_ms=10 * SECOND, jitter=0.5))
    driver = Driver(config, records=50)
    driver.settle(driver.take(50), SettleAction.RELEASE)

    seen: list[int] = []
    for _ in range(10):
        driver.wait(SECOND)
        seen.append(driver.counts().get("visible", 0))

    assert seen[:4] == [0, 0, 0, 0]
    assert seen[-1] == 50
    assert len(set(seen)) > 4


def test_a_release_can_be_repeated() -> None:
    """A client retries after a lost reply."""
    driver = Driver(records=1)
    received = driver.take()
    driver.settle(received, SettleAction.RELEASE, delay_ms=SECOND)

    assert refusals(driver.settle(received, SettleAction.RELEASE, delay_ms=SECOND)) == {}
    assert driver.counts() == {"delayed": 1}


@pytest.mark.statement("b7")
@any_queue
@pytest.mark.parametrize("delay_ms", [0, 9 * SECOND])
def test_a_late_extension_after_a_release_does_not_hide_the_message(
    config: QueueConfig, delay_ms: int
) -> None:
    """The reply to the extension was lost, and the client retries it."""
    driver = Driver(config, records=1)
    received = driver.take()
    driver.settle(received, SettleAction.EXTEND, delay_ms=60 * SECOND)
    driver.settle(received, SettleAction.RELEASE, delay_ms=delay_ms)

    again = driver.settle(received, SettleAction.EXTEND, delay_ms=60 * SECOND)

    assert refusals(again) == {0: ErrorCode.RECEIPT_EXPIRED}
    driver.wait(delay_ms)
    assert driver.offsets() == [0]


@pytest.mark.statement("b50")
@any_queue
def test_a_returned_message_was_not_delivered(config: QueueConfig) -> None:
    driver = Driver(config, records=1)
    received = driver.take()

    assert refusals(driver.settle(received, SettleAction.RETURN)) == {}

    assert driver.take().runs[0].receive_count == 1


@pytest.mark.statement("b50")
@any_queue
def test_a_second_return_of_a_message_is_refused(config: QueueConfig) -> None:
    driver = Driver(config, records=1)
    driver.take(timeout_ms=0)
    received = driver.take()
    driver.settle(received, SettleAction.RETURN)

    settled = driver.settle(received, SettleAction.RETURN)

    assert refusals(settled) == {0: ErrorCode.RECEIPT_EXPIRED}
    assert driver.take().runs[0].receive_count == 2


@any_queue
def test_a_rejected_message_is_a_dead_letter_at_once(config: QueueConfig) -> None:
    driver = Driver(
        QueueConfig(
            is_fifo=config.is_fifo,
            require_latest_receipt=config.require_latest_receipt,
            dead_letter_target=TARGET,
        ),
        records=2,
    )
    received = driver.take()

    assert refusals(driver.settle(received, SettleAction.REJECT, 0, reason="not a number")) == {}

    assert driver.counts() == {"in_flight": 1, "dead": 1}
    batch = driver.queue.state.moves.next_batch(TARGET)
    assert batch is not None
    assert batch.runs == [(0, 1)]
    assert refusals(driver.settle(received, SettleAction.REJECT, 0)) == {}
    assert refusals(driver.delete(received, 0)) == {0: ErrorCode.MESSAGE_GONE}


@pytest.mark.statement("b88")
def test_a_rejected_message_is_kept_without_a_dead_letter_queue() -> None:
    driver = Driver(records=1)

    driver.settle(driver.take(), SettleAction.REJECT)

    assert driver.counts() == {"dead": 1}
    assert driver.queue.state.moves.targets() == []
    assert driver.queue.state.moves.next_batch(NO_TARGET) is not None


@pytest.mark.statement("b73", "b74", "b75")
def test_every_leader_accepts_receipts_of_earlier_leaders() -> None:
    """Statements 74 and 75."""
    driver = Driver(records=2)
    received = driver.take(timeout_ms=10 * SECOND)
    driver.wait(4 * SECOND)

    driver.fail_over()

    assert driver.counts() == {"in_flight": 2}
    assert refusals(driver.delete(received, 0)) == {}
    driver.wait(6 * SECOND)
    assert driver.take().runs[0].receive_count == 2


def test_a_settlement_has_a_reason_of_up_to_8192_characters() -> None:
    driver = Driver(records=1)

    driver.settle(driver.take(), SettleAction.RELEASE, delay_ms=SECOND, reason="x" * 8192)

    (seen,), _ = driver.queue.peek([], 0, 10)
    assert (seen.first_offset, seen.count, seen.reason) == (0, 1, "x" * 8192)


@pytest.mark.parametrize(
    ("action", "settings"),
    [
        (9, {}),
        (SettleAction.EXTEND, {}),
        (SettleAction.CHANGE_VISIBILITY, {}),
        (SettleAction.RELEASE, {"reason": "x" * 8193}),
        (SettleAction.DELETE, {"runs": [(0, 0)]}),
        (SettleAction.DELETE, {"runs": [(-1, 2)]}),
    ],
)
def test_an_invalid_settlement_is_refused(action: int, settings: dict[str, object]) -> None:
    driver = Driver(records=1)
    receipt = driver.take().receipt
    fields = {"runs": [(0, 1)], **settings}
    settlement = Settlement(7, receipt, action=action, **fields)  # type: ignore[arg-type]

    settled = driver.do(driver.queue.settle(settlement, now_ms=driver.now_ms))

    assert settled.error is not None
    assert settled.error.code == ErrorCode.INVALID_REQUEST


@pytest.mark.statement("b80")
@any_queue
@pytest.mark.parametrize("first", [SettleAction.DELETE, SettleAction.REJECT])
def test_of_two_settlements_of_a_message_the_first_wins_and_the_second_is_refused(
    config: QueueConfig, first: SettleAction
) -> None:
    """Statement 80."""
    second = {SettleAction.DELETE: SettleAction.REJECT, SettleAction.REJECT: SettleAction.DELETE}
    driver = Driver(config, records=1)
    received = driver.take()

    assert refusals(driver.settle(received, first)) == {}
    assert refusals(driver.settle(received, second[first])) == {0: ErrorCode.MESSAGE_GONE}

    assert driver.counts() == ({"dead": 1} if first is SettleAction.REJECT else {})


@pytest.mark.statement("b81")
@any_queue
def test_a_delete_in_replication_succeeds_although_the_lease_ends_meanwhile(
    config: QueueConfig,
) -> None:
    """Statement 81: what is committed counts, in its order."""
    driver = Driver(config, records=2)
    received = driver.take()
    driver.wait(30 * SECOND - 1)
    settlement = Settlement(7, received.receipt, [(0, 1)], SettleAction.DELETE)
    deletion = driver.queue.settle(settlement, now_ms=driver.now_ms)
    driver.do(deletion)

    driver.wait(1)

    assert driver.offsets() == [1]
    driver.fail_over()
    driver.wait(30 * SECOND)
    assert driver.offsets() == [1]


@pytest.mark.statement("b81")
def test_an_uncommitted_delete_lost_with_its_leader_did_not_happen() -> None:
    """Statement 81: an uncommitted entry does not count, so the message is delivered again."""
    driver = Driver(records=1)
    received = driver.take()
    settlement = Settlement(7, received.receipt, [(0, 1)], SettleAction.DELETE)
    driver.queue.settle(settlement, now_ms=driver.now_ms)

    driver.fail_over()
    driver.wait(30 * SECOND)

    assert driver.offsets() == [0]


@any_queue
def test_visibility_can_be_changed_during_a_lease(config: QueueConfig) -> None:
    driver = Driver(config, records=1)
    received = driver.take()

    for seconds in (100, 5, 60):
        changed = driver.settle(received, SettleAction.CHANGE_VISIBILITY, delay_ms=seconds * SECOND)
        assert refusals(changed) == {}
    driver.wait(59 * SECOND)
    assert driver.counts() == {"in_flight": 1}
    assert refusals(driver.settle(received, SettleAction.EXTEND, delay_ms=SECOND)) == {}
    driver.wait(SECOND)

    assert driver.counts() == {"visible": 1}


@pytest.mark.parametrize("config", [QueueConfig(), FENCED], ids=["standard", "fenced"])
def test_visibility_can_be_changed_after_a_release_and_leaves_a_delay(config: QueueConfig) -> None:
    driver = Driver(config, records=2)
    received = driver.take()
    driver.settle(received, SettleAction.RELEASE, 0, delay_ms=0)

    changed = driver.settle(received, SettleAction.CHANGE_VISIBILITY, delay_ms=40 * SECOND)

    assert refusals(changed) == {}
    assert driver.counts() == {"delayed": 1, "in_flight": 1}
    extended = driver.settle(received, SettleAction.EXTEND, delay_ms=SECOND)
    assert refusals(extended) == {0: ErrorCode.RECEIPT_EXPIRED}
    driver.settle(received, SettleAction.CHANGE_VISIBILITY, delay_ms=0)
    assert driver.offsets() == [0, 1]


@any_queue
def test_a_visibility_of_zero_releases_a_message_at_once(config: QueueConfig) -> None:
    driver = Driver(config, records=1)
    received = driver.take()

    changed = driver.settle(received, SettleAction.CHANGE_VISIBILITY, delay_ms=0)

    assert refusals(changed) == {}
    extended = driver.settle(received, SettleAction.EXTEND, delay_ms=SECOND)
    assert refusals(extended) == {0: ErrorCode.RECEIPT_EXPIRED}
    assert driver.offsets() == [0]


def test_a_fifo_queue_changes_visibility_during_a_lease_only() -> None:
    driver = Driver(FIFO, records=2)
    received = driver.take(timeout_ms=5 * SECOND)
    driver.settle(received, SettleAction.RELEASE, 0, delay_ms=60 * SECOND)

    released = driver.settle(received, SettleAction.CHANGE_VISIBILITY, 0, delay_ms=SECOND)
    driver.wait(5 * SECOND)
    over = driver.settle(received, SettleAction.CHANGE_VISIBILITY, 1, delay_ms=SECOND)

    assert refusals(released) == {0: ErrorCode.RECEIPT_EXPIRED}
    assert refusals(over) == {1: ErrorCode.RECEIPT_EXPIRED}


def test_a_changed_visibility_ends_twelve_hours_after_the_receive() -> None:
    driver = Driver(records=2)
    received = driver.take()
    driver.settle(received, SettleAction.RELEASE, 0)
    driver.wait(SECOND)

    late = driver.settle(received, SettleAction.CHANGE_VISIBILITY, delay_ms=HOURS_12 - SECOND + 1)

    assert set(refusals(late).values()) == {ErrorCode.INVALID_REQUEST}
    settled = driver.settle(received, SettleAction.CHANGE_VISIBILITY, delay_ms=HOURS_12 - SECOND)
    assert refusals(settled) == {}


def test_a_returned_message_can_be_hidden_as_a_released_one() -> None:
    driver = Driver(records=1)
    received = driver.take()
    driver.settle(received, SettleAction.RETURN)

    changed = driver.settle(received, SettleAction.CHANGE_VISIBILITY, delay_ms=9 * SECOND)

    assert refusals(changed) == {}
    assert driver.counts() == {"delayed": 1}
