"""Program that works until SIGTERM, by one of the ways that the documentation shows.

python -m tests.system.integration.stopped_program WAY ADDRESS NAME

It prints each value when the work on it begins. The work of a handler ends with a byte of standard
input, and consumers commit before it.
"""

import asyncio
import os
import signal
import sys
from typing import Final

import trio

import tidelog
import tidelog.aio
import tidelog.blocking


def _begin(value: bytes | None) -> None:
    sys.stdout.write(f"{(value or b'').decode()}\n")
    sys.stdout.flush()


def _work(value: bytes | None) -> None:
    _begin(value)
    os.read(sys.stdin.fileno(), 1)


async def _work_in_thread(message: tidelog.Message) -> None:
    await trio.to_thread.run_sync(_work, message.value)


def run_blocking_worker(address: str, name: str) -> int:
    with tidelog.blocking.connect(address) as client:
        worker = client.queue(name).worker(lambda message: _work(message.value), concurrency=2)
        with tidelog.stop_on_signal(worker.stop) as stopped:
            worker.run()
    return stopped.status


async def run_asyncio_worker(address: str, name: str) -> int:
    async def handle(message: tidelog.aio.Message) -> None:
        await asyncio.to_thread(_work, message.value)

    async with tidelog.aio.connect(address) as client:
        worker = client.queue(name).worker(handle, concurrency=2)
        with tidelog.stop_on_signal(worker.stop) as stopped:
            await worker.run()
    return stopped.status


async def run_workers(address: str, name: str) -> int:
    """Run two workers in one program, each with handlers of its own for signals."""
    async with tidelog.connect(address) as client, trio.open_nursery() as nursery:
        statuses: list[int] = []

        async def run() -> None:
            worker = client.queue(name).worker(_work_in_thread, concurrency=1)
            with tidelog.stop_on_signal(worker.stop) as stopped:
                await worker.run()
            statuses.append(stopped.status)

        nursery.start_soon(run)
        nursery.start_soon(run)
    assert statuses[0] == statuses[1]
    return statuses[0]


async def run_consumer(address: str, name: str) -> int:
    async with (
        tidelog.connect(address) as client,
        client.consumer(name, group_id=name, auto_offset_reset="earliest") as consumer,
    ):
        reading = trio.CancelScope()
        with tidelog.stop_on_signal(reading.cancel) as stopped, reading:
            async for record in consumer:
                await consumer.commit()
                _begin(record.value)
    return stopped.status


def _leave(number: int, frame: object) -> None:
    del frame
    sys.exit(128 + number)


def run_blocking_consumer(address: str, name: str) -> int:
    signal.signal(signal.SIGTERM, _leave)
    with (
        tidelog.blocking.connect(address) as client,
        client.consumer(name, group_id=name, auto_offset_reset="earliest") as consumer,
    ):
        for record in consumer:
            consumer.commit()
            _begin(record.value)
    return 0


_ASYNCHRONOUS: Final = {"workers": run_workers, "consumer": run_consumer}
_BLOCKING: Final = {
    "blocking-worker": run_blocking_worker,
    "blocking-consumer": run_blocking_consumer,
}


def run(way: str, address: str, name: str) -> int:
    if way in _BLOCKING:
        return _BLOCKING[way](address, name)
    if way == "asyncio-worker":
        return asyncio.run(run_asyncio_worker(address, name))
    return trio.run(_ASYNCHRONOUS[way], address, name)


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
