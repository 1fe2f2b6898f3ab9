"""Dead letters: messages that were rejected, or had all their deliveries.

Pure: no clock, no I/O. A message becomes a dead letter when its last lease ends, or when it is
released after its last delivery: no receive finds it visible in between.
"""

from collections.abc import Iterator
from typing import Final

from tidelog.queue_layer.commands.receive import RUNS_MAX, joined
from tidelog.queue_layer.state.queue_state import QueueState
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.messages.queue_journal import AnyEntry, DeadLettered, Target
from tidelog.wire.messages.queues import MessageState, Run

MOVE_BATCH_MAX: Final = 100
"""Maximum dead letters in one batch to their target."""
EXHAUSTED_MAX: Final = 1000
"""Maximum messages in one decision about messages that had all their deliveries."""


def exhausted(state: QueueState, config: QueueConfig) -> list[AnyEntry]:
    """Return the entries for messages that are visible after their last delivery.

    Of very many only a part: what is left stays in `state.exhausted`.
    """
    noted, left = [], EXHAUSTED_MAX
    for first, count in state.exhausted[:RUNS_MAX]:
        noted.append((first, min(count, left)))
        left -= count
        if left <= 0:
            break
    del state.exhausted[: len(noted)]
    if left < 0:
        first, count = noted[-1]
        state.exhausted.insert(0, (first + count, -left))
    if config.dead_letter_target is None:
        return []
    runs = [
        (at, stop - at)
        for first, end in _distinct(noted)
        for at, stop, found_in, status in state.pieces(first, end)
        if found_in is MessageState.VISIBLE and state.runs.is_exhausted(status)
    ]
    return list(dead_lettered(runs, config.dead_letter_target, ""))


def _distinct(runs: list[Run]) -> Iterator[tuple[int, int]]:
    """Yield first offsets and ends of runs, without those that another run has."""
    at = 0
    for first, count in sorted(runs):
        if max(at, first) < first + count:
            yield max(at, first), first + count
            at = first + count


def dead_lettered(runs: list[Run], target: Target, reason: str) -> Iterator[AnyEntry]:
    """Yield the entries that make messages dead letters."""
    return (DeadLettered(batch, target, reason) for batch in move_batches(runs))


def move_batches(runs: list[Run]) -> Iterator[list[Run]]:
    """Yield messages in batches for one target, ascending, as large as they may be."""
    batch: list[Run] = []
    room = MOVE_BATCH_MAX
    for first, count in joined(runs):
        start, end = first, first + count
        while start < end:
            used = min(room, end - start)
            batch.append((start, used))
            start += used
            room -= used
            if not room:
                yield batch
                batch, room = [], MOVE_BATCH_MAX
    if batch:
        yield batch
