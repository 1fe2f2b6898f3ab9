"""Mutations of transactions."""

from collections.abc import Collection
from typing import Final

from tests.simulation.mutations.mutation import Mutation
from tidelog.broker.transactions import append
from tidelog.broker.transactions.low_watermark import StagingLowWatermark
from tidelog.logstore.producer_state import ProducerStates
from tidelog.wire.batch.record_batch import BatchHeader

_check = ProducerStates.check


def _nothing_done(commit_number: int, record_count: int, next_sequence: int | None) -> int:
    del commit_number, record_count, next_sequence
    return 0


def _check_but_what_was_staged(self: ProducerStates, header: BatchHeader) -> int | None:
    return None if header.was_staged else _check(self, header)


def _ends_with_the_log(
    self: StagingLowWatermark,
    needed: Collection[int],
    *,
    log_start_offset: int,
    log_end_offset: int,
) -> int:
    del self, needed, log_start_offset
    return log_end_offset


APPENDED_AGAIN: Final = Mutation(
    "transaction-appended-again",
    "a new leader appends a whole commit, even if the log has a part of it",
    (append, "appended_count", _nothing_done),
    (ProducerStates, "check", _check_but_what_was_staged),
)
DROPPED_EARLY: Final = Mutation(
    "transaction-dropped-early",
    "staged records are dropped although their transaction is open",
    (StagingLowWatermark, "low_watermark", _ends_with_the_log),
)
MUTATIONS: Final = (APPENDED_AGAIN, DROPPED_EARLY)
