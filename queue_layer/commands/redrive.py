"""Moving messages elsewhere because somebody wants it: mostly dead letters, back to their source.

Pure: no clock, no I/O. Which message goes where, and how fast, is up to who reads the records; how
far it is stands in the journal, so that whoever takes over goes on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

from tidelog.queue_layer.commands.peek import peek
from tidelog.queue_layer.commands.receive import joined, move_batches
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
    """Move what is there now."""

    destination: bytes | None = None
    """Topic id; `None` for where each message came from."""
    messages_per_s: int | None = None
    origin_queue: str | None = None
    """Only messages from this queue."""


def start(state: QueueState, command: RedriveCommand, to_move: int) -> list[AnyEntry]:
    """Return what to write about a new redrive; nothing if just this one is running.

    Raises:
        InvalidRequestError: Another one is running.
    """
    redrive = running(state)
    if redrive is not None:
        if (redrive.destination, redrive.messages_per_s, redrive.origin_queue) == (
            command.destination,
            command.messages_per_s,
            command.origin_queue,
        ):
            return []
        raise InvalidRequestError("another redrive of this queue is running; cancel it or wait")
    return [
        RedriveStarted(
            state.unreceived.end,
            to_move,
            command.destination,
            command.messages_per_s,
            command.origin_queue,
        )
    ]


def running(state: QueueState) -> Redrive | None:
    """Return the redrive that runs."""
    redrive = state.redrive
    return redrive if redrive is not None and redrive.status is RedriveStatus.RUNNING else None


def candidates(state: QueueState, max_messages: int) -> tuple[list[Run], int]:
    """Return the next messages that nobody has, and below which offset that is all of them."""
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
    state: QueueState, moves: Sequence[tuple[Target, list[Run]]], next_offset: int, *, skipped: int
) -> list[AnyEntry]:
    """Return what to write when all below an offset was looked at, and some is to be moved.

    What is not visible any more meanwhile stays.
    """
    redrive = running(state)
    if redrive is None:
        return []
    entries: list[AnyEntry] = []
    visible = [(target, list(_visible(state, joined(runs)))) for target, runs in moves]
    for target, runs in visible:
        entries.extend(Redriven(batch, target) for batch in move_batches(runs))
    if next_offset > redrive.next_offset:
        entries.append(RedriveProgressed(min(next_offset, redrive.end), skipped))
    if next_offset >= redrive.end:
        entries.append(RedriveEnded(RedriveStatus.COMPLETED))
    changed = joined([run for _, runs in visible for run in runs])
    return [*passed(state, changed, entries), *entries]


def end(state: QueueState, status: RedriveStatus, reason: str) -> list[AnyEntry]:
    """Return what to write about the end of the redrive; nothing if none runs."""
    return [] if running(state) is None else [RedriveEnded(status, reason)]


def _visible(state: QueueState, runs: list[Run]) -> Iterator[Run]:
    for first, count in runs:
        seen, _ = peek(state, frozenset(), first, max_messages=count)
        for run in seen:
            stop = min(run.first_offset + run.count, first + count)
            is_visible = run.state in (MessageState.VISIBLE, MessageState.BLOCKED)
            if is_visible and run.first_offset < stop:
                yield run.first_offset, stop - run.first_offset
