"""Pending dead letters: messages to be moved to other topics, in order, exactly once.

Pure: no clock, no I/O.

Each target has a chain of sequences for the idempotent producer of this partition of the queue. The
sequence of a message is its place in the chain, so it is never stored. A batch is the part of one
journal entry for a target; a retry of a move repeats the whole batch, so that the target partition
recognises it. A gap in a chain would stop it for ever. After a gap (a message cannot be moved, or
was purged), the rest starts again under the next epoch of the producer.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import final

from tidelog.wire.messages.queue_journal import NO_TARGET, BackgroundWork, SnapshotMoves, Target
from tidelog.wire.messages.queues import Run


@final
@dataclass(frozen=True, slots=True)
class DeadLetterBatch:
    """Messages to be produced to a target next, by the idempotent producer.

    Epoch and sequence belong to this very batch: repeat it unchanged until the outcome is known. A
    batch that is too large for one request is cut by a rule that depends on its records alone,
    always beginning at the first. `moved` takes any part from the front.
    """

    target: Target
    epoch: int
    sequence: int
    """Sequence of the first message; the others follow."""
    runs: list[Run]
    redrive: int = 0
    """Number of the redrive that took them out; 0 for dead letters."""

    @property
    def count(self) -> int:
        """The number of messages."""
        return sum(count for _, count in self.runs)


@final
@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Consecutive messages that became dead letters for the same reason."""

    first_offset: int
    count: int
    receive_count: int
    first_received_ms: int
    """Unix milliseconds; 0 if they were never received."""
    last_received_ms: int
    reason: str
    """Reason given by a consumer; empty if they were received too often."""


@dataclass(slots=True)
class _Batch:
    runs: list[Run]
    redrive: int

    @property
    def count(self) -> int:
        return sum(count for _, count in self.runs)


@dataclass(slots=True)
class _Chain:
    epoch: int = 0
    sequence: int = 0
    batches: deque[_Batch] = field(default_factory=deque[_Batch])
    pending: int = 0
    """Number of messages in the batches: there may be very many while a target does not answer."""

    def extend(self, batches: Iterable[_Batch]) -> None:
        """Append batches."""
        for batch in batches:
            self.batches.append(batch)
            self.pending += batch.count

    def pop(self, count: int) -> list[Run]:
        """Remove the first messages and return them."""
        taken: list[Run] = []
        self.sequence += count
        self.pending -= count
        while count:
            assert self.batches, "more messages were moved than were pending"
            runs = self.batches[0].runs
            first, length = runs[0]
            used = min(length, count)
            taken.append((first, used))
            count -= used
            if used < length:
                runs[0] = (first + used, length - used)
                continue
            del runs[0]
            if not runs:
                self.batches.popleft()
        return taken

    def break_off(self) -> None:
        self.epoch += 1
        self.sequence = 0

    def drop(self, first: int, end: int) -> None:
        """Remove messages in a range of offsets."""
        kept = deque[_Batch]()
        is_broken = False
        for batch in self.batches:
            runs: list[Run] = []
            for start, count in batch.runs:
                runs.extend(_without(start, start + count, first, end=end))
            is_broken = is_broken or runs != batch.runs
            if runs:
                kept.append(_Batch(runs, batch.redrive))
        if is_broken:
            self.clear()
            self.extend(kept)

    def clear(self) -> None:
        """Remove all messages."""
        self.batches, self.pending = deque(), 0
        self.break_off()


def _without(start: int, stop: int, first: int, *, end: int) -> Iterator[Run]:
    if start < min(stop, first):
        yield start, min(stop, first) - start
    if max(start, end) < stop:
        yield max(start, end), stop - max(start, end)


@final
class PendingDeadLetters:
    """All chains of one partition of a queue."""

    def __init__(self, snapshots: list[SnapshotMoves] | None = None) -> None:
        """Start with the moves of a snapshot; a chain may be in several parts, in their order."""
        self.chains: dict[Target, _Chain] = {}
        """Chains of the targets that had messages; to be read only."""
        for snapshot in snapshots or []:
            redrives = snapshot.redrives or [0] * len(snapshot.batches)
            target = (snapshot.target[0], snapshot.target[1])
            chain = self.chains.setdefault(target, _Chain(snapshot.epoch, snapshot.sequence))
            chain.extend(
                _Batch(list(runs), redrive)
                for runs, redrive in zip(snapshot.batches, redrives, strict=True)
            )

    def snapshot(self) -> list[SnapshotMoves]:
        """Return the moves for a snapshot."""
        return [
            SnapshotMoves(
                target,
                chain.epoch,
                chain.sequence,
                [list(batch.runs) for batch in chain.batches],
                [batch.redrive for batch in chain.batches],
            )
            for target, chain in sorted(self.chains.items())
        ]

    @property
    def background_work(self) -> BackgroundWork:
        """Whether messages are to be moved, or kept until they have a target."""
        background_work = BackgroundWork.NOTHING
        for target, chain in self.chains.items():
            if chain.batches:
                if target != NO_TARGET:
                    return BackgroundWork.MOVES
                background_work = BackgroundWork.KEPT
        return background_work

    def targets(self) -> list[Target]:
        """Return the targets with messages to move now, in a fixed order."""
        return sorted(
            target for target, chain in self.chains.items() if chain.batches and target != NO_TARGET
        )

    def next_batch(self, target: Target) -> DeadLetterBatch | None:
        """Return the batch to be produced to a target next."""
        chain = self.chains.get(target)
        if chain is None or not chain.batches:
            return None
        batch = chain.batches[0]
        return DeadLetterBatch(target, chain.epoch, chain.sequence, list(batch.runs), batch.redrive)

    def end_of(self, target: Target) -> tuple[int, int]:
        """Return the epoch of a chain, and the sequence after its last message."""
        chain = self.chains.get(target)
        if chain is None:
            return 0, 0
        return chain.epoch, chain.sequence + chain.pending

    def has_reached(self, target: Target, end: tuple[int, int]) -> bool:
        """Return whether the messages below an earlier `end_of` are moved, or cannot be moved."""
        chain = self.chains.get(target)
        return chain is None or (chain.epoch, chain.sequence) >= end

    def count_of(self, redrive: int) -> int:
        """Return the number of pending messages of a redrive."""
        return sum(
            batch.count
            for chain in self.chains.values()
            for batch in chain.batches
            if batch.redrive == redrive
        )

    def has_below(self, end: int) -> bool:
        """Return whether messages below an offset are to be moved somewhere."""
        return any(
            batch.runs[0][0] < end
            for target, chain in self.chains.items()
            if target != NO_TARGET
            for batch in chain.batches
        )

    def next_if(
        self, target: Target, epoch: int, sequence: int, *, count: int
    ) -> DeadLetterBatch | None:
        """Return the next batch of a target if it has this epoch, sequence and `count` messages."""
        batch = self.next_batch(target)
        is_it = (
            batch is not None
            and (batch.epoch, batch.sequence) == (epoch, sequence)
            and 0 < count <= batch.count
        )
        return batch if is_it else None

    def add(self, target: Target, runs: list[Run], *, redrive: int = 0) -> None:
        """Append messages to a chain, as one batch."""
        self.chains.setdefault(target, _Chain()).extend([_Batch(list(runs), redrive)])

    def pop(self, target: Target, count: int) -> list[Run]:
        """Remove and return the first messages, which were moved."""
        return self.chains[target].pop(count)

    def give_up(self, target: Target, count: int) -> list[Run]:
        """Remove and return the first messages, which cannot be moved."""
        chain = self.chains[target]
        runs = chain.pop(count)
        chain.break_off()
        return runs

    def retarget(self, source: Target, target: Target) -> None:
        """Move the chain of one target to the end of another's."""
        chain = self.chains.get(source)
        if chain is None or source == target:
            return
        self.chains.setdefault(target, _Chain()).extend(chain.batches)
        chain.clear()

    def drop(self, first: int, end: int) -> None:
        """Remove messages in a range of offsets, which are gone and must not be moved."""
        for chain in self.chains.values():
            chain.drop(first, end)
