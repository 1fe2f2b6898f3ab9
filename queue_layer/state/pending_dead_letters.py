"""Messages that are to be moved to other topics, in order, with the sequences that make it once.

Pure: no clock, no I/O.

Each target has a chain of sequences for the idempotent producer of this partition of the queue: a
message's sequence is its place in the chain, so it is never stored. A batch is what one entry of
the journal gave to a target; whoever repeats a move repeats the whole batch, so that the partition
there knows it again. A gap in a chain would stop it for ever; where one comes about (a message
cannot be moved, or was purged), the rest begins anew under the next epoch of the producer.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import final

from tidelog.wire.messages.queue_journal import NO_TARGET, BackgroundWork, SnapshotMoves, Target
from tidelog.wire.messages.queues import Run


@final
@dataclass(frozen=True, slots=True)
class DeadLetterBatch:
    """What is to be produced to a target next, by the idempotent producer.

    Its epoch and sequence are those for this very batch: repeat it as it is until the outcome is
    known. A batch that is too large for one request is cut by a rule that depends on its records
    alone, always beginning at the first. `moved` is told of any part from the front.
    """

    target: Target
    epoch: int
    sequence: int
    """Of the first message; the others follow."""
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
    """Messages that follow each other and died of the same."""

    first_offset: int
    count: int
    receive_count: int
    first_received_ms: int
    """0 if nobody ever received them."""
    last_received_ms: int
    reason: str
    """Empty if nobody gave one: then they were received too often."""


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

    def pop(self, count: int) -> list[Run]:
        """Remove the first messages and return them."""
        taken: list[Run] = []
        self.sequence += count
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
        """Take out messages in a range of offsets."""
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
            self.batches = kept
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
        """Begin with what was kept; a chain may be there in several parts, in their order."""
        self._chains: dict[Target, _Chain] = {}
        for snapshot in snapshots or []:
            redrives = snapshot.redrives or [0] * len(snapshot.batches)
            target = (snapshot.target[0], snapshot.target[1])
            chain = self._chains.setdefault(target, _Chain(snapshot.epoch, snapshot.sequence))
            chain.batches.extend(
                _Batch(list(runs), redrive)
                for runs, redrive in zip(snapshot.batches, redrives, strict=True)
            )

    def snapshot(self) -> list[SnapshotMoves]:
        """Return all that is to be kept."""
        return [
            SnapshotMoves(
                target,
                chain.epoch,
                chain.sequence,
                [list(batch.runs) for batch in chain.batches],
                [batch.redrive for batch in chain.batches],
            )
            for target, chain in sorted(self._chains.items())
        ]

    @property
    def background_work(self) -> BackgroundWork:
        """Whether something is to be moved, or kept until there is a place for it."""
        background_work = BackgroundWork.NOTHING
        for target, chain in self._chains.items():
            if chain.batches:
                if target != NO_TARGET:
                    return BackgroundWork.MOVES
                background_work = BackgroundWork.KEPT
        return background_work

    def targets(self) -> list[Target]:
        """Return the targets to which something is to be moved now, in a fixed order."""
        return sorted(
            target
            for target, chain in self._chains.items()
            if chain.batches and target != NO_TARGET
        )

    def next_batch(self, target: Target) -> DeadLetterBatch | None:
        """Return what is to be produced to a target next."""
        chain = self._chains.get(target)
        if chain is None or not chain.batches:
            return None
        batch = chain.batches[0]
        return DeadLetterBatch(target, chain.epoch, chain.sequence, list(batch.runs), batch.redrive)

    def count_of(self, redrive: int) -> int:
        """Return how many messages wait that one redrive took out."""
        return sum(
            batch.count
            for chain in self._chains.values()
            for batch in chain.batches
            if batch.redrive == redrive
        )

    def has_below(self, end: int) -> bool:
        """Return whether messages below an offset are to be moved somewhere."""
        return any(
            batch.runs[0][0] < end
            for target, chain in self._chains.items()
            if target != NO_TARGET
            for batch in chain.batches
        )

    def next_if(
        self, target: Target, epoch: int, sequence: int, *, count: int
    ) -> DeadLetterBatch | None:
        """Return what is next if the chain of a target is here, and so much is in its batch."""
        batch = self.next_batch(target)
        is_it = (
            batch is not None
            and (batch.epoch, batch.sequence) == (epoch, sequence)
            and 0 < count <= batch.count
        )
        return batch if is_it else None

    def add(self, target: Target, runs: list[Run], *, redrive: int = 0) -> None:
        """Put messages at the end of a chain, as one batch."""
        self._chains.setdefault(target, _Chain()).batches.append(_Batch(list(runs), redrive))

    def pop(self, target: Target, count: int) -> list[Run]:
        """Remove the first messages, which are there now, and return them."""
        return self._chains[target].pop(count)

    def give_up(self, target: Target, count: int) -> list[Run]:
        """Remove the first messages, which cannot be moved, and return them."""
        chain = self._chains[target]
        runs = chain.pop(count)
        chain.break_off()
        return runs

    def retarget(self, source: Target, target: Target) -> None:
        """Let everything that was to go to one target go to another one."""
        chain = self._chains.get(source)
        if chain is None or source == target:
            return
        self._chains.setdefault(target, _Chain()).batches.extend(chain.batches)
        chain.batches = deque()
        chain.break_off()

    def drop(self, first: int, end: int) -> None:
        """Forget messages in a range of offsets: they are gone here, and must not get there."""
        for chain in self._chains.values():
            chain.drop(first, end)
