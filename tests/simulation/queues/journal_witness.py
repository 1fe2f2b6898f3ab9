"""Observer of journal leaders: the entries that they write, and the states that they load.

A broker publishes no journal entries. So its functions are wrapped for the duration of a run, and
the code under test is unchanged.
"""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import trio

from tests.simulation.mutations.mutation import Mutation, Patch
from tests.simulation.queues.journal_model import State
from tests.simulation.queues.run_history import (
    JournalAppended,
    JournalLoaded,
    Moving,
    QueueRunHistory,
)
from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.queues.dead_letter_record import DeadLetterRecord
from tidelog.broker.queues.dead_letters.mover import DeadLetterMover
from tidelog.broker.queues.partition.journal import Journal
from tidelog.queue_layer.state.pending_dead_letters import DeadLetterBatch
from tidelog.queue_layer.state.queue_state import QueueState
from tidelog.wire.messages.queue_journal import JournalFrame


@contextmanager
def watching_journals(run_history: QueueRunHistory) -> Generator[None]:
    """Report all journals to `run_history` while the block runs."""
    # Wrap the current functions: they may contain mutations.
    append, load, produce = Journal._append_batch, Journal.load, DeadLetterMover._produce

    def append_watched(self: Journal, values: list[bytes], now_ms: int) -> None:
        offset = self.partition.log.log_end_offset
        append(self, values, now_ms)
        now = trio.current_time()
        run_history.journal_appended(
            JournalAppended(self.partition.key, self.epoch, offset, values, now)
        )

    async def load_watched(
        self: Journal, reader: SliceReader, apply: Callable[[JournalFrame], None]
    ) -> bool:
        found = await load(self, reader, apply)
        state = cast("Any", apply).__self__
        assert isinstance(state, QueueState), "a journal is applied to the state of its queue"
        run_history.journal_loaded(_loaded(self, state))
        return found

    async def produce_watched(
        self: DeadLetterMover, batch: DeadLetterBatch, records: list[DeadLetterRecord]
    ) -> int:
        run_history.moving(_moving(self._hosted.journal.partition, batch, records))
        return await produce(self, batch, records)

    patches: list[Patch] = [
        (Journal, "_append_batch", append_watched),
        (Journal, "load", load_watched),
        (DeadLetterMover, "_produce", produce_watched),
    ]
    with Mutation("witness", "an observer is installed", *patches).applied():
        yield


def _moving(
    journal: Partition, batch: DeadLetterBatch, records: Sequence[DeadLetterRecord]
) -> Moving:
    return Moving(
        journal.key,
        batch.target,
        [record.offset for record in records],
        journal.high_watermark,
        journal.log.leader_epochs.entries,
    )


def _loaded(journal: Journal, state: QueueState) -> JournalLoaded:
    partition = journal.partition
    return JournalLoaded(
        partition.key,
        partition.log.log_end_offset,
        partition.high_watermark,
        state.cursor,
        {
            offset: State(
                status.stored, status.visible_at_ms, status.receive_count, status.lease_id
            )
            for first, end, status in state.runs
            for offset in range(first, end)
        },
        {
            target: [
                offset
                for batch in chain.batches
                for first, count in batch.runs
                for offset in range(first, first + count)
            ]
            for target, chain in state.moves.chains.items()
            if chain.batches
        },
        partition.log.leader_epochs.entries,
    )
