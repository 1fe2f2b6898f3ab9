"""Receive attempts. Numbers in docstrings: docs/queue-statements.md."""

import pytest

from tidelog.queue_layer.state.receive_attempts import (
    ATTEMPT_WINDOW_MS,
    ATTEMPTS_MAX,
    ReceiveAttempts,
)
from tidelog.wire.messages.queue_journal import Attempt

DEADLINE_MS = 30_000


def attempt(
    name: str, lease_id: int = 1, *, received_ms: int = 0, deadline_ms: int = DEADLINE_MS
) -> Attempt:
    return Attempt(name.encode(), lease_id, ((10, 2), (15, 1)), received_ms, deadline_ms)


def test_a_repeated_attempt_finds_the_same_messages_and_the_same_lease() -> None:
    """Statement 36."""
    attempts = ReceiveAttempts()
    attempts.received(attempt("a"))

    found = attempts.find(b"a", now_ms=DEADLINE_MS - 1)

    assert found is not None
    assert found.lease_id == 1
    assert found.runs == ((10, 2), (15, 1))
    assert attempts.find(b"b", now_ms=0) is None


def test_after_the_leases_ended_a_repeated_attempt_receives_new_messages() -> None:
    """Statement 36: an expired lease counts as a change."""
    attempts = ReceiveAttempts()
    attempts.received(attempt("a"))

    assert attempts.find(b"a", now_ms=DEADLINE_MS) is None


def test_after_a_settlement_a_repeated_attempt_receives_new_messages() -> None:
    """Statement 36: a delete, an extension, a release."""
    attempts = ReceiveAttempts()
    attempts.received(attempt("a", 1))
    attempts.received(attempt("b", 2))

    attempts.on_lease_changed(1)
    attempts.on_lease_changed(77)

    assert attempts.find(b"a", now_ms=1) is None
    assert attempts.find(b"b", now_ms=1) is not None


def test_a_repetition_renews_the_leases_but_not_the_attempt() -> None:
    """Statement 36: five minutes from the first receive on."""
    attempts = ReceiveAttempts()
    attempts.received(attempt("a"))

    attempts.received(attempt("a", deadline_ms=10 * ATTEMPT_WINDOW_MS))

    found = attempts.find(b"a", now_ms=ATTEMPT_WINDOW_MS - 1)
    assert found is not None
    assert found.deadline_ms == 10 * ATTEMPT_WINDOW_MS
    assert attempts.find(b"a", now_ms=ATTEMPT_WINDOW_MS) is None


def test_an_empty_receive_is_not_stored_as_an_attempt() -> None:
    """Statement 36."""
    attempts = ReceiveAttempts()
    attempts.received(Attempt(b"a", 1, (), 0, DEADLINE_MS))

    assert attempts.find(b"a", now_ms=1) is None
    assert len(attempts) == 0


def test_a_reused_attempt_id_names_the_later_receive() -> None:
    attempts = ReceiveAttempts()
    attempts.received(attempt("a", 1))
    attempts.received(attempt("a", 2, received_ms=DEADLINE_MS, deadline_ms=2 * DEADLINE_MS))

    attempts.on_lease_changed(1)

    found = attempts.find(b"a", now_ms=DEADLINE_MS)
    assert found is not None
    assert found.lease_id == 2


def test_expired_attempts_are_removed() -> None:
    attempts = ReceiveAttempts()
    for second in range(1_000):
        attempts.received(attempt(str(second), second, received_ms=second * 1000))

        assert len(attempts) <= ATTEMPT_WINDOW_MS // 1000


def test_the_number_of_attempts_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.queue_layer.state.receive_attempts.ATTEMPTS_MAX", 3)
    attempts = ReceiveAttempts()
    for number in range(5):
        attempts.received(attempt(str(number), number))

    assert [a.attempt_id for a in attempts] == [b"2", b"3", b"4"]
    assert ATTEMPTS_MAX > 3


def test_iterated_attempts_restore_the_same_state() -> None:
    attempts, again = ReceiveAttempts(), ReceiveAttempts()
    for number in range(5):
        attempts.received(attempt(str(number), number, received_ms=number))
    attempts.received(attempt("1", 1, received_ms=1, deadline_ms=99_999))
    attempts.on_lease_changed(3)

    for each in attempts:
        again.received(each)

    assert list(again) == list(attempts)
    again.clear()
    assert len(again) == 0
    again.on_lease_changed(1)
