"""Settlement of messages: the rights of receipts, and the journal entries.

Pure: no clock, no I/O. Rights of a receipt by the state of the message (`lease` is the receipt's):

| the message | DELETE | RELEASE | CHANGE_VISIBILITY | REJECT | EXTEND, RETURN |
|---|---|---|---|---|---|
| is leased under it | yes | yes | yes | yes | yes |
| was; not received since | yes, FIFO: expired | as DELETE | as DELETE | as DELETE | as DELETE |
| was released under it | yes, FIFO: expired | as DELETE | as DELETE | as DELETE | expired |
| was received again | yes, fenced: expired | expired | expired | expired | expired |
| is a dead letter | gone | yes, if under it | gone | yes, if under it | gone |
| is done | yes | gone | gone | gone | gone |
| was received before a seek | expired | expired | expired | expired | expired |
| does not know that lease | yes, fenced: expired | expired | expired | expired | expired |

A release after the last delivery makes a message a dead letter, regardless of the delay: no
further delivery follows.

A receipt that has released a message does not extend it: that would be the retry of an earlier
extension whose reply was lost, and would hide the message once more. CHANGE_VISIBILITY says that
the caller wants this: after a release it is a release with another delay, and so it is for 0.

The last row is about leases that were lost with a leader (`receive_acks` `leader`): the message
is unreceived, or was skipped since. It may have been received under another lost lease, too.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from tidelog.queue_layer.commands.dead_letter import dead_lettered
from tidelog.queue_layer.commands.receive import RUNS_MAX, joined
from tidelog.queue_layer.commands.unreceived_entries import passed
from tidelog.queue_layer.receipts import ReceiptContent
from tidelog.queue_layer.state.message_state import SKIPPED, MessageStatus, SnapshotState
from tidelog.queue_layer.state.queue_state import QueueState
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.errors import (
    BrokerError,
    ErrorDetail,
    InvalidReceiptError,
    InvalidRequestError,
    LeaderNotAvailableError,
    MessageGoneError,
    ReceiptExpiredError,
)
from tidelog.wire.messages.queue_journal import (
    NO_TARGET,
    AnyEntry,
    Deleted,
    Extended,
    Released,
    Returned,
)
from tidelog.wire.messages.queues import (
    VISIBILITY_TIMEOUT_MS_MAX,
    Refused,
    Run,
    SettleAction,
    Settled,
    Settlement,
)

REASON_LENGTH_MAX: Final = 8192
_ACTIONS: Final = {int(action): action for action in SettleAction}
_OF_HOLDERS: Final = (SettleAction.EXTEND, SettleAction.RETURN)
"""Actions that need a lease that was not released."""
_TO_DEAD_LETTERS: Final = (SettleAction.RELEASE, SettleAction.REJECT)
"""Actions that may make dead letters, and have no effect when repeated."""
_HIDING: Final = (SettleAction.EXTEND, SettleAction.CHANGE_VISIBILITY)
"""Actions that hide messages for a time."""

_Piece = tuple[int, int, MessageStatus | None]
"""First offset, end and status; `None` if the messages are done."""
_Open = tuple[int, int, MessageStatus]
"""A piece of messages that are not done."""


def decide(
    state: QueueState,
    config: QueueConfig,
    settlement: Settlement,
    *,
    receipt: ReceiptContent,
    now_ms: int,
) -> tuple[list[AnyEntry], list[Refused]]:
    """Return the entries of a settlement, and the messages for which it was refused.

    Raises:
        InvalidRequestError: The settlement is invalid for any message.
        LeaderNotAvailableError: Not all records up to those that it deletes are known yet.
    """
    action = _checked_action(settlement)
    accepted: list[_Open] = []
    refused: list[tuple[Run, BrokerError]] = []
    for first, end, is_covered in _covered(settlement.runs, receipt.runs):
        if not is_covered:
            foreign = InvalidReceiptError("the receipt is not one of these messages")
            refused.append(((first, end - first), foreign))
            continue
        for piece_first, piece_end, status in _pieces(state, first, end):
            error = _refusal(state, config, status, action=action, lease_id=receipt.lease_id)
            if error is None and action in _HIDING:
                error = _too_long(status, now_ms + (settlement.delay_ms or 0))
            if error is not None:
                refused.append(((piece_first, piece_end - piece_first), error))
            elif status is not None:
                accepted.append((piece_first, piece_end, status))
    if accepted and accepted[-1][1] > max(state.cursor, state.unreceived.end):
        # The cursor would pass records that may be delayed, or chunks.
        raise LeaderNotAvailableError("the messages are not all known here yet")
    if action is SettleAction.DELETE:
        entries = _deleted(state, accepted)
    else:
        entries = _entries(
            state, config, settlement, receipt=receipt, pieces=accepted, now_ms=now_ms
        )
    return entries, _grouped(refused) if refused else []


def _split(settlement: Settlement, pieces: list[_Open]) -> tuple[list[_Open], list[_Open]]:
    """Return the pieces in flight that stay invisible, and the others."""
    action = settlement.action
    changes = action == SettleAction.CHANGE_VISIBILITY and settlement.delay_ms
    if not changes and action != SettleAction.EXTEND:
        return [], pieces
    hidden = [piece for piece in pieces if piece[2].stored is SnapshotState.IN_FLIGHT]
    return hidden, [piece for piece in pieces if piece[2].stored is SnapshotState.AVAILABLE]


def divided(settlement: Settlement) -> Sequence[Settlement]:
    """Return a settlement of more than `RUNS_MAX` runs in parts, to be decided one after the other.

    A settlement with an invalid run is not divided, so that it is refused as a whole.
    """
    runs = settlement.runs
    if not all(map(_is_valid, runs)):
        return (settlement,)
    return [
        replace(settlement, runs=runs[start : start + RUNS_MAX])
        for start in range(0, len(runs), RUNS_MAX)
    ]


def merged(parts: list[Settled]) -> Settled:
    """Return the result of a settlement from those of its parts; an error is that of the whole."""
    by_error: dict[tuple[int, str], tuple[ErrorDetail, list[Run]]] = {}
    for part in parts:
        if part.error is not None:
            return part
        for refused in part.refused:
            error = refused.error
            by_error.setdefault((error.code, error.message), (error, []))[1].extend(refused.runs)
    return Settled([Refused(joined(runs), error) for error, runs in by_error.values()])


def _is_valid(run: Run) -> bool:
    first, count = run
    return first >= 0 and count >= 1


def _checked_action(settlement: Settlement) -> SettleAction:
    action = _ACTIONS.get(settlement.action)
    if action is None:
        raise InvalidRequestError(f"no action has number {settlement.action}")
    if action in _HIDING and settlement.delay_ms is None:
        raise InvalidRequestError(f"{action.name} needs delay_ms: for how long from now on")
    if len(settlement.reason) > REASON_LENGTH_MAX:
        raise InvalidRequestError(f"a reason has at most {REASON_LENGTH_MAX} characters")
    for first, count in settlement.runs:
        if first < 0 or count < 1:
            raise InvalidRequestError("a run has a first offset from 0 on and a count from 1 on")
    if action is SettleAction.CHANGE_VISIBILITY and not settlement.delay_ms:
        return SettleAction.RELEASE
    return action


def _covered(runs: list[Run], by: list[Run]) -> Iterable[tuple[int, int, bool]]:
    """Return the runs in pieces, ascending, and whether each is covered by others."""
    if runs == by and len(by) == 1:
        first, count = by[0]
        return ((first, first + count, True),)
    return _compared(runs, by)


def _compared(runs: list[Run], by: list[Run]) -> Iterator[tuple[int, int, bool]]:
    at, place = 0, 0
    for first, count in joined(runs):
        at, end = max(at, first), first + count
        while at < end:
            while place < len(by) and by[place][0] + by[place][1] <= at:
                place += 1
            if place == len(by) or by[place][0] >= end:
                yield at, end, False
                at = end
            elif by[place][0] > at:
                yield at, by[place][0], False
                at = by[place][0]
            else:
                stop = min(end, by[place][0] + by[place][1])
                yield at, stop, True
                at = stop


def _pieces(state: QueueState, first: int, end: int) -> list[_Piece]:
    """Return messages with their status; the lease of unreceived ones was lost."""
    at, passed_end = first, min(end, state.cursor)
    pieces: list[_Piece] = []
    for piece in state.runs.pieces(first, passed_end):
        if at < piece[0]:
            pieces.append((at, piece[0], None))
        pieces.append(piece)
        at = piece[1]
    if at < passed_end:
        pieces.append((at, passed_end, None))
    if max(first, state.cursor) < end:
        pieces.append((max(first, state.cursor), end, SKIPPED))
    return pieces


def _refusal(
    state: QueueState,
    config: QueueConfig,
    status: MessageStatus | None,
    *,
    action: SettleAction,
    lease_id: int,
) -> BrokerError | None:
    if lease_id < state.void_below_lease_id:
        return ReceiptExpiredError("the queue was moved to another offset since; receive again")
    if status is None:
        is_deleted = action is SettleAction.DELETE
        return None if is_deleted else MessageGoneError("the message is not there any more")
    is_in_flight = status.stored is SnapshotState.IN_FLIGHT
    if status.lease_id == lease_id and is_in_flight and status.visible_at_ms > state.runs.time_ms:
        return None
    if status.stored is SnapshotState.DEAD:
        if action in _TO_DEAD_LETTERS and status.lease_id == lease_id:
            return None
        return MessageGoneError("the message is a dead letter")
    return _refusal_of_ended(config, status, action=action, lease_id=lease_id)


def _refusal_of_ended(
    config: QueueConfig, status: MessageStatus, *, action: SettleAction, lease_id: int
) -> BrokerError | None:
    """Return the error for messages that are not leased under the receipt, and not dead."""
    if status.lease_id != lease_id:
        if action is SettleAction.DELETE and not config.is_fenced:
            return None
        is_lost = status.lease_id < lease_id
        return ReceiptExpiredError(
            "the lease was lost with the broker that gave it"
            if is_lost
            else "the message was received again since"
        )
    if config.is_fifo:
        return ReceiptExpiredError("the visibility timeout is over; others may have the message")
    if action in _OF_HOLDERS and status.stored is SnapshotState.AVAILABLE:
        return ReceiptExpiredError("the message was released by this receipt")
    return None


def _too_long(status: MessageStatus | None, until_ms: int) -> BrokerError | None:
    # A returned message was not received: then `last_received_ms` is 0.
    received_ms = 0 if status is None else status.last_received_ms
    if not received_ms or until_ms <= received_ms + VISIBILITY_TIMEOUT_MS_MAX:
        return None
    return InvalidRequestError(
        "a message is invisible for at most"
        f" {VISIBILITY_TIMEOUT_MS_MAX // 1000} seconds after it was received"
    )


def _entries(
    state: QueueState,
    config: QueueConfig,
    settlement: Settlement,
    *,
    receipt: ReceiptContent,
    pieces: list[_Open],
    now_ms: int,
) -> list[AnyEntry]:
    action = settlement.action
    if action in {SettleAction.REJECT, SettleAction.RETURN}:
        runs = _runs_of(pieces)
        if not runs:
            return []
        if action == SettleAction.RETURN:
            return [Returned(runs, now_ms)]
        target = config.dead_letter_target or NO_TARGET
        return list(dead_lettered(runs, target, settlement.reason or "rejected"))
    hidden, others = _split(settlement, pieces)
    entries = _extended(state, receipt, hidden, until_ms=now_ms + (settlement.delay_ms or 0))
    if others:
        entries += _released(
            state, config, settlement, lease_id=receipt.lease_id, pieces=others, now_ms=now_ms
        )
    return entries


def _deleted(state: QueueState, pieces: list[_Open]) -> list[AnyEntry]:
    runs = _runs_of(pieces)
    if not runs:
        return []
    entries: list[AnyEntry] = [Deleted(runs)]
    return entries if state.unreceived.is_plain else [*passed(state, runs, entries), *entries]


def _extended(
    state: QueueState, receipt: ReceiptContent, pieces: list[_Open], *, until_ms: int
) -> list[AnyEntry]:
    """Return the entries that end leases at a time, or a little later if very many end then."""
    if not pieces:
        return []
    received_ms = [status.last_received_ms for _, _, status in pieces]
    latest_ms = min(received_ms) + VISIBILITY_TIMEOUT_MS_MAX
    until_ms = max(until_ms, min(state.runs.free_time(until_ms), latest_ms))
    return [Extended(receipt.lease_id, _runs_of(pieces), until_ms)]


def _runs_of(pieces: list[_Open]) -> list[Run]:
    """Return the runs that are not dead."""
    runs: list[Run] = []
    for first, end, status in pieces:
        if status.stored is not SnapshotState.DEAD:
            runs.append((first, end - first))
    return joined(runs) if len(runs) > 1 else runs


def _released(
    state: QueueState,
    config: QueueConfig,
    settlement: Settlement,
    *,
    lease_id: int,
    pieces: list[_Open],
    now_ms: int,
) -> list[AnyEntry]:
    """Return one entry for each time at which messages become visible again.

    Messages that had all their deliveries become dead letters.
    """
    by_delay: dict[int, list[Run]] = {}
    exhausted: list[Run] = []
    for first, end, status in pieces:
        if status.stored is SnapshotState.DEAD:
            continue
        if config.dead_letter_target is not None and state.runs.is_exhausted(status):
            exhausted.append((first, end - first))
            continue
        if settlement.delay_ms is not None:
            by_delay.setdefault(settlement.delay_ms, []).append((first, end - first))
            continue
        backoff = config.retry_backoff
        step = end - first if backoff.is_equal_for_all else 1
        for offset in range(first, end, step):
            delay_ms = backoff.delay_ms(status.receive_count, lease_id=lease_id, offset=offset)
            by_delay.setdefault(delay_ms, []).append((offset, step))
    entries: list[AnyEntry] = [
        Released(joined(runs), now_ms + delay_ms, settlement.reason)
        for delay_ms, runs in sorted(by_delay.items())
    ]
    if config.dead_letter_target is not None:
        entries.extend(dead_lettered(exhausted, config.dead_letter_target, settlement.reason))
    return entries


def _grouped(refused: list[tuple[Run, BrokerError]]) -> list[Refused]:
    """Return refusals, one error for all messages with the same."""
    by_error: dict[tuple[int, str], list[Run]] = {}
    details: dict[tuple[int, str], ErrorDetail] = {}
    for run, error in refused:
        key = (int(error.code), str(error))
        by_error.setdefault(key, []).append(run)
        details[key] = error.to_wire()
    return [Refused(joined(runs), details[key]) for key, runs in by_error.items()]
