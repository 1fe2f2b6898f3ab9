"""Benchmark of a broker's memory while much data passes through one topic."""

from bench.figures import Row, Settings
from bench.machine import broker_process
from bench.produce import Batches
from bench.raw import RawConnection, make_batch, pump
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch
from tidelog.wire.messages.produce import Acks
from tidelog.wire.protocol import api

_RECORDS_IN_BATCH = 1000
_DEPTH = 5
_GOAL_BYTES = 150_000_000
_GB = 1_000_000_000


def _read_back(broker: RawConnection, topic_id: bytes, count: int) -> None:
    """Fetch all batches, about 1 MiB at a time, by their known offsets."""
    offset, end = 0, count * _RECORDS_IN_BATCH
    batch_bytes = len(make_batch(_RECORDS_IN_BATCH))
    while offset < end:
        wanted = PartitionFetch(topic_id, 0, offset, 1 << 20)
        (result,) = broker.ask(api.FETCH, FetchRequest(1000, 1, 1 << 20, [wanted])).results
        assert result.error is None, result.error
        assert result.batch_bytes, "the fetch returned no batch"
        offset += result.batch_bytes // batch_bytes * _RECORDS_IN_BATCH


def run(settings: Settings) -> list[Row]:
    """Write some GB to one topic, and read all of it."""
    total_bytes = settings.choose(5 * _GB, _GB // 2)
    with broker_process(settings.directory / "data") as server:
        broker = RawConnection(server.address)
        before = server.resident_bytes
        topic_id = broker.create_topic("memory", durability="replicated")
        batches = Batches(topic_id, _RECORDS_IN_BATCH, Acks.LEADER, producer_id=0)
        count = total_bytes // len(batches.batch)
        pump(broker.sock, batches.next_frame, count, depth=_DEPTH)
        written = server.resident_bytes_peak
        _read_back(broker, topic_id, count)
        peak = server.resident_bytes_peak
        broker.delete_topic("memory")
        broker.close()
    return [
        Row(
            f"memory: most resident memory while {total_bytes / _GB:g} GB pass through one topic"
            " and are read back",
            f"{peak / 1e6:.0f} MB ({before / 1e6:.0f} before, {written / 1e6:.0f} when written)",
            f"< {_GOAL_BYTES / 1e6:.0f} MB",
            peak < _GOAL_BYTES,
        )
    ]
