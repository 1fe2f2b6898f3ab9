"""Small batches that unpack to much: a consumer in a real process needs little memory for them.

When this was written, a consumer grew by 26 MiB for values that are nil, by 65 MiB for 32 MiB of
values, by 240 to 270 MiB for as many objects as a reader accepts, and by 32 MiB for refused ones.
"""

import sys
from collections.abc import Callable

import pytest
import trio

from tests.client.hostile_broker import always, hostile_broker, in_turn
from tests.paths import ROOT
from tests.system.integration.processes import environment
from tidelog.wire.batch.batch_columns import DECODED_COUNT_MAX
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import (
    PRODUCED_COUNT_MAX,
    PRODUCED_LENGTH_MAX,
    Columns,
    encode_batch,
)
from tidelog.wire.env.real.tcp import TcpNetwork
from tidelog.wire.messages.fetch import FetchReply, PartitionFetched
from tidelog.wire.protocol import api

COUNT = DECODED_COUNT_MAX
ROOM = PRODUCED_LENGTH_MAX - 100
"""Bytes of the columns of the longest batch that a leader accepts."""


def nil_values() -> Columns:
    return Columns(COUNT, values=[None] * COUNT)


def one_value() -> Columns:
    return Columns(1, values=[bytes(ROOM)])


def small_values() -> Columns:
    count = PRODUCED_COUNT_MAX
    return Columns(count, values=[bytes(ROOM // count - 3)] * count)


def four_columns() -> Columns:
    """Return as many objects as a reader accepts, none of which is shared."""
    return Columns(
        COUNT,
        timestamp_deltas=[*range(1000, 1000 + COUNT)],
        keys=[b"a key"] * COUNT,
        values=[b"a value"] * COUNT,
        offset_deltas=[*range(1000, 1000 + COUNT)],
    )


def most_headers() -> Columns:
    """Return one record with 1.4 million headers, which a leader accepts."""
    return Columns(1, headers=[(("ab", b"cd"),) * (4 * COUNT // 3 - 10)])


def headers_of_many_records() -> Columns:
    return Columns(COUNT, headers=[(("a", b"b"),) * 3] * COUNT)


@pytest.mark.parametrize(
    ("columns", "growth_mib"),
    [
        (nil_values, 60),
        (one_value, 100),
        (small_values, 100),
        (four_columns, 300),
        (most_headers, 300),
    ],
)
async def test_a_batch_at_the_bounds_of_readers_needs_little_memory(
    columns: Callable[[], Columns], growth_mib: int
) -> None:
    found = columns()
    count, growth = await consumed(found)

    assert count == found.record_count
    assert growth < growth_mib


async def test_a_batch_of_very_many_headers_is_refused_before_it_needs_memory() -> None:
    count, growth = await consumed(headers_of_many_records())

    assert count == 0
    assert growth < 60


async def consumed(columns: Columns) -> tuple[int, float]:
    """Return the records that a consumer got, and the growth of its process in MiB."""
    batch = bytes(encode_batch(columns, first_timestamp_ms=0, codec=Codec.ZSTD))
    fetched = FetchReply([PartitionFetched(len(batch), 1 << 40, 0)])
    command = [sys.executable, "-m", "tests.system.integration.bombed_client"]
    async with hostile_broker(TcpNetwork(), ("127.0.0.1", 0)) as broker:
        broker.answer(api.FETCH, in_turn(always(fetched, batch)))
        address = "{}:{}".format(*broker.address)
        result = await trio.run_process(
            [*command, str(columns.record_count), address],
            capture_stdout=True,
            cwd=ROOT,
            env=environment(),
        )
    count, growth = result.stdout.split()
    return int(count), float(growth)
