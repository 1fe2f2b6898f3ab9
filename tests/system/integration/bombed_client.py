"""Process that consumes one batch, and prints its records and the growth of its memory in MiB.

python -m tests.system.integration.bombed_client RECORDS ADDRESS
"""

import sys

import trio

import tidelog
from tests.system.integration.peak_memory import peak_memory_mib
from tidelog.wire.errors import CorruptRecordError


async def consume(record_count: int, address: str) -> tuple[int, float]:
    """Read so many records, or up to a corrupt batch; return their number and the growth."""
    count = 0
    async with tidelog.connect(address) as client, client.consumer("orders") as consumer:
        consumer.seek("orders", 0, 0)
        before = peak_memory_mib()
        try:
            async for _ in consumer.records():
                count += 1
                if count == record_count:
                    break
        except CorruptRecordError:
            pass
        return count, peak_memory_mib() - before


if __name__ == "__main__":
    sys.stdout.write("{} {}".format(*trio.run(consume, int(sys.argv[1]), sys.argv[2])))
