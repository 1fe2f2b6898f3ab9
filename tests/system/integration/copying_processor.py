"""Processor as a process: `python -m tests.system.integration.copying_processor ADDRESS`.

It copies `orders` into `copies` until SIGTERM, and says when it begins to process.
"""

import signal
import sys
from collections.abc import Sequence

import trio

import tidelog


def copied(records: Sequence[tidelog.Record]) -> list[tidelog.ProducerRecord]:
    sys.stdout.write(f"copies {len(records)} records\n")
    sys.stdout.flush()
    return [tidelog.ProducerRecord("copies", each.value, key=each.value) for each in records]


async def main(address: str) -> None:
    async with tidelog.connect(address) as client, trio.open_nursery() as nursery:
        processor = client.processor(
            "orders", copied, name="copier", batch=True, commit_interval=0.05
        )
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            nursery.start_soon(processor.run)
            async for _ in signals:
                processor.stop()
                return


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
