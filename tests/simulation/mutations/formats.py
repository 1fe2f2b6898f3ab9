"""Mutations of brokers whose logs have batches of both formats, with clients that know one."""

# A mutation replaces private parts of the code.
# pyright: reportPrivateUsage=false

from typing import Final

from msgspec.structs import replace

import tidelog.broker.handlers.fetch
import tidelog.wire.batch.older_format
from tests.simulation.mutations.mutation import Mutation
from tidelog.broker.handlers.fetch import Room
from tidelog.broker.requests.response import ResponseHandle
from tidelog.wire.batch.older_format import columns_of
from tidelog.wire.batch.record_batch import BatchHeader, Columns
from tidelog.wire.env.env import BytesLike


def _room_of_a_newer_client(response: ResponseHandle) -> Room:
    del response
    return Room()


def _columns_in_reverse(header: BatchHeader, batch: BytesLike) -> Columns:
    columns = columns_of(header, batch)
    values = columns.values
    return replace(columns, values=None if values is None else list(values)[::-1])


def _columns_without_gaps(header: BatchHeader, batch: BytesLike) -> Columns:
    return replace(columns_of(header, batch), offset_deltas=None)


IN_LOGS: Final = (
    Mutation(
        "older-clients-get-both-formats",
        "a client that knows format version 1 of batches only gets the others as they are",
        (tidelog.broker.handlers.fetch, "room_of", _room_of_a_newer_client),
    ),
    Mutation(
        "rewritten-in-reverse",
        "a batch that is rewritten for an older client has its values in another order",
        (tidelog.wire.batch.older_format, "columns_of", _columns_in_reverse),
    ),
)
"""Mutations that only readers of an older version find."""

IN_COMPACTED_LOGS: Final = (
    Mutation(
        "rewritten-without-gaps",
        "a compacted batch that is rewritten for an older client is numbered from its first offset",
        (tidelog.wire.batch.older_format, "columns_of", _columns_without_gaps),
    ),
)
"""Mutations that only readers of an older version find, in compacted topics."""
