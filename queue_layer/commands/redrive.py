"""Redrive: moves of messages by request, mostly dead letters back to their source.

Pure: no clock, no I/O. The reader of the records decides the target of each message, and the rate.
The progress is in the journal, so that the next leader continues.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

from tidelog.queue_layer.commands.dead_letter import move_batches
from tidelog.queue_layer.commands.peek import peek
from tidelog.queue_layer.commands.receive import joined
from tidelog.queue_layer.commands.unreceived_entries import passed
from tidelog.queue_layer.state.queue_state import QueueState
from tidelog.queue_layer.state.redrive_state import Redrive
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.messages.queue_journal import (
    AnyEntry,
    RedriveEnded,
    Redriven,
    RedriveProgressed,
    RedriveStarted,
    Target,
)
from tidelog.wire.messages.queues import MessageState, Run
from tidelog.wire.messages.redrives import RedriveStatus


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveCommand:
    """Redrive of the current messages."""

    destination: bytes | None = None
    """Topic id; `None` for the source of each message."""
    messages_per_s: int | None = None
    origin_queue: str | None = None
    """Only messages from this queue."""
    redrive_id: bytes = b""
    """Id that the client chose, so that a repeated command starts nothing; empty for none."""
    note: str = ""
    """Text of the client for reports."""
    only_sources: bool = False
    """Whether messages go only to topics of queues that send their dead letters here."""


def start(state: QueueState, command: RedriveCommand, to_move: int) -> list[AnyEntry]:
    """Return the entries of a new redrive; none if there is a redrive of this command.

    Raises:
        InvalidRequestError: A different redrive is running.
    """
    if redrive_of(state, command) is not None:
        return []
    if running(state) is not None:
        raise InvalidRequestError("another redrive of this queue is running; cancel it or wait")
    return [
        RedriveStarted(
            state.unreceived.end,
            to_move,
            command.destination,
            command.messages_per_s,
            command.origin_queue,
            command.redrive_id,
            command.note,
            command.only_sources,
        )
    ]


def redrive_of(state: QueueState, command: RedriveCommand) -> Redrive | None:
    """Return the redrive that a command has started before, if it is remembered.

    With an id that is the redrive of this id, also after its end; without one an equal redrive that
    is running.
    """
    if command.redrive_id:
        return state.redrives.with_id(command.redrive_id)
    redrive = running(state)
    is_same = redrive is not None and _fields(redrive) == _fields(command)
    return redrive if is_same else None


def _fields(redrive: Redrive | RedriveCommand) -> tuple[object, ...]:
    """Return what makes redrives without an id equal."""
    return (
        redrive.destination,
        redrive.messages_per_s,
        redrive.origin_queue,
        redrive.only_sources,
    )


def running(state: QueueState) -> Redrive | None:
    """Return the current redrive, if one is running."""
    redrive = state.redrive
    return redrive if redrive is not None and redrive.status is RedriveStatus.RUNNING else None


def candidates(state: QueueState, max_messages: int) -> tuple[list[Run], int]:
    """Return the next messages that are not in flight, and the offset below which they are all."""
    redrive = running(state)
    if redrive is None:
        return [], 0
    states = frozenset({MessageState.VISIBLE, MessageState.BLOCKED})
    seen, next_offset = peek(state, states, redrive.next_offset, max_messages=max_messages)
    found = [
        (run.first_offset, min(run.count, redrive.end - run.first_offset))
        for run in seen
        if run.first_offset < redrive.end
    ]
    end = redrive.end if next_offset is None else min(next_offset, redrive.end)
    return joined(found), end


def progress(
    state: QueueState,
    moves: Sequence[tuple[Target, list[Run]]],
    next_offset: int,
    *,
    skipped: int,
    reason: str = "",
) -> list[AnyEntry]:
    """Return the entries after all messages below an offset were looked at, with their moves.

    Messages that are not visible any more stay. With a `reason` the redrive fails at its end.
    """
    redrive = running(state)
    if redrive is None:
        return []
    entries: list[AnyEntry] = []
    visible = [(target, list(_visible(state, joined(runs)))) for target, runs in moves]
    for target, runs in visible:
        entries.extend(Redriven(batch, target) for batch in move_batches(runs))
    if next_offset > redrive.next_offset:
        entries.append(RedriveProgressed(min(next_offset, redrive.end), skipped, reason))
    if next_offset >= redrive.end:
        reason = redrive.reason or reason
        status = RedriveStatus.FAILED if reason else RedriveStatus.COMPLETED
        entries.append(RedriveEnded(status, reason))
    changed = joined([run for _, runs in visible for run in runs])
    return [*passed(state, changed, entries), *entries]


def end(state: QueueState, status: RedriveStatus, reason: str) -> list[AnyEntry]:
    """Return the entries of the end of the redrive; none if none is running."""
    return [] if running(state) is None else [RedriveEnded(status, reason)]


def lost_destination(state: QueueState, number: int, reason: str) -> list[AnyEntry]:
    """Return the entries after the destination of messages of a redrive was found deleted.

    A redrive that runs fails at its end, one that has completed meanwhile fails now.
    """
    redrive = state.redrive
    if redrive is None or redrive.number != number or redrive.reason:
        return []
    if redrive.status is RedriveStatus.RUNNING:
        return [RedriveProgressed(redrive.next_offset, 0, reason)]
    if redrive.status is RedriveStatus.COMPLETED:
        return [RedriveEnded(RedriveStatus.FAILED, reason)]
    return []


def _visible(state: QueueState, runs: list[Run]) -> Iterator[Run]:
    for first, count in runs:
        seen, _ = peek(state, frozenset(), first, max_messages=count)
        for run in seen:
            stop = min(run.first_offset + run.count, first + count)
            is_visible = run.state in (MessageState.VISIBLE, MessageState.BLOCKED)
            if is_visible and run.first_offset < stop:
                yield run.first_offset, stop - run.first_offset
