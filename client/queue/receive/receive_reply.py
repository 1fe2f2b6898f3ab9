"""Replies to receives: what is wrong with one, and the order of its messages.

Pure: no clock, no I/O.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from tidelog.client.cluster.reply_shapes import excess
from tidelog.client.queue.receive.message import Message
from tidelog.wire.messages.queues import RECEIVE_COUNT_MAX, PartitionReceived, ReceiveReply

Ranked = tuple[int, Message]
"""Rank and message; see `ReceivedRun.rank`."""
rank_of: Final = itemgetter(0)


def ranked(received: PartitionReceived, messages: list[Message]) -> list[Ranked]:
    """Return messages of one partition in the order in which they are to be processed."""
    ranks: dict[int, int] = {}
    has_ranks = False
    for run in received.runs:
        if run.rank:
            has_ranks = True
    if not has_ranks:
        return [(0, message) for message in messages]
    for run in received.runs:
        ranks.update(dict.fromkeys(range(run.first_offset, run.first_offset + run.count), run.rank))
    return sorted(((ranks[each.offset], each) for each in messages), key=rank_of)


def problem_of(reply: ReceiveReply, partitions: Sequence[int]) -> str | None:
    """Return in which way a reply is wrong, `None` if it is right."""
    total, is_right = 0, True
    for result in reply.results:
        if result.partition not in partitions:
            return f"partition {result.partition} was not asked for"
        for run in result.runs:
            total += run.count
            is_right = is_right and run.count > 0
    if is_right and total <= RECEIVE_COUNT_MAX:
        return None
    return excess((run.count for each in reply.results for run in each.runs), RECEIVE_COUNT_MAX)
