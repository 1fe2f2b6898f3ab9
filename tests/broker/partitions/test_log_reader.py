"""Tests of pieces of logs on their way to clients."""

from trio.testing import MockClock

from tests.broker.logs import TOPIC_ID, append, config_of, flush, open_partition_log
from tests.broker.world import World
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.broker.partitions.log_reader import SliceReader
from tidelog.broker.partitions.partition import Partition
from tidelog.wire.protocol.write_buffer import FileRegion


async def test_what_is_small_is_copied_and_what_is_large_is_not(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    config = config_of("fsync")
    log = open_partition_log(FaultyDisk(), config)
    append(log, b"a")
    flush(log)
    partition = Partition(TOPIC_ID, 0, log, config=config, probe=world.env.probe)
    part = log.read(0, bytes_max=1 << 20, high_watermark=1)
    assert part is not None
    reader = SliceReader(world.env)

    assert not reader.is_cold(part)
    assert reader.piece(partition, part, 1 << 20) == part.read()
    assert isinstance(reader.piece(partition, part, 1), FileRegion)
    assert (await reader.load(partition, part)).length == part.length
