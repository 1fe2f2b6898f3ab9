"""Process that sends or receives one large message, and prints the growth of its memory.

python -m tests.system.integration.large_client send|chunks|worker|join MIB ADDRESS
"""

import sys
from collections.abc import AsyncIterator

import trio

import tidelog
from tests.system.integration.peak_memory import peak_memory_mib

MiB = 1024 * 1024


async def pieces(count: int) -> AsyncIterator[bytes]:
    """Yield `count` MiB."""
    piece = bytes(range(256)) * 4096
    for _ in range(count):
        await trio.lowlevel.checkpoint()
        yield piece


async def counted(message: tidelog.Message) -> int:
    """Read a message to its end and return its length."""
    return sum([len(chunk) async for chunk in message.chunks()])


async def work(queue: tidelog.Queue) -> int:
    """Let a worker read one message, and return its length."""
    lengths: list[int] = []

    async def handle(message: tidelog.Message) -> None:
        lengths.append(await counted(message))
        worker.stop()

    worker = queue.worker(handle)
    await worker.run()
    return lengths[0]


async def do(what: str, mib: int, address: str) -> float:
    """Execute the operation, and return the growth of this process's memory in MiB."""
    async with tidelog.connect(address) as client:
        queue = client.queue("large")
        before = peak_memory_mib()
        length = mib * MiB
        if what == "send":
            await queue.send(pieces(mib))
        elif what == "worker":
            length = await work(queue)
        else:
            limit = 0 if what == "chunks" else length
            (message,) = await queue.receive(1, wait=20, max_value_bytes=limit)
            length = await counted(message) if what == "chunks" else len(message.value or b"")
            await message.release(0)
        assert length == mib * MiB
        return peak_memory_mib() - before


if __name__ == "__main__":
    sys.stdout.write(str(trio.run(do, sys.argv[1], int(sys.argv[2]), sys.argv[3])))
