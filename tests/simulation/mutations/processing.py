"""Mutations of processors."""

from typing import Final

from tests.simulation.mutations.mutation import Mutation
from tidelog.client.processing import processor
from tidelog.client.processing.input_progress import GroupOffset, Start, start_of
from tidelog.client.processing.input_transactions import InputTransactions


async def _whatever_was_committed(self: InputTransactions, previous_id: int) -> None:
    del self, previous_id


def _at_the_offset_of_the_group(last_id: int, committed: GroupOffset | None) -> Start:
    if committed is None:
        return start_of(last_id, committed)
    return Start(last_id, committed.offset)


WITHOUT_COMPARISON: Final = Mutation(
    "processor-commits-without-comparison",
    "a transaction does not compare the last committed one with that on which it builds",
    (InputTransactions, "_require_last", _whatever_was_committed),
)
AT_THE_GROUP_OFFSET: Final = Mutation(
    "processor-starts-at-the-group-offset",
    "a processor starts at the committed offset of the group, which is behind the transactions",
    (processor, "start_of", _at_the_offset_of_the_group),
)
MUTATIONS: Final = (WITHOUT_COMPARISON, AT_THE_GROUP_OFFSET)
