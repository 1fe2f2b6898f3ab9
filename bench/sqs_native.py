"""Load process of the native client, with the same work as that of SQS (`bench.sqs_load`)."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from time import perf_counter, process_time
from typing import final

import trio

import tidelog
from bench.sqs_load import SqsOrder, SqsResult, middle_and_tail

_HEAD_DIGITS = 12, 20
_WAIT_S = 20


@final
class _NativeLoad:
    """The inside of a load process: a task for each connection of the other generator."""

    def __init__(self, order: SqsOrder, client: tidelog.Client) -> None:
        self._order = order
        self._queue = client.queue(order.queues[0])
        self._filler = b"x" * (order.value_bytes - sum(_HEAD_DIGITS))
        self._sent = self._deleted = self._acknowledged = self._requests = 0
        self._seconds: dict[str, list[float]] = {"SendMessage": [], "DeleteMessage": []}
        self._began = 0.0
        self._is_done = trio.Event()

    async def run(self) -> SqsResult:
        """Send and work until all messages are sent and deleted."""
        self._began, cpu_before = perf_counter(), process_time()
        async with trio.open_nursery() as nursery:
            for _ in range(self._order.senders):
                nursery.start_soon(self._send)
            for _ in range(self._order.workers):
                nursery.start_soon(self._work)
            await self._is_done.wait()
            ended, cpu = perf_counter(), process_time() - cpu_before
            nursery.cancel_scope.cancel()
        seconds = {kind: middle_and_tail(each) for kind, each in self._seconds.items()}
        return SqsResult(self._began, ended, cpu, self._requests, seconds=seconds)

    async def _send(self) -> None:
        order = self._order
        while self._sent < order.count:
            number, taken = self._sent, min(order.batch, order.count - self._sent)
            self._sent += taken
            due = perf_counter()
            if order.rate:
                due = self._began + number / order.rate
                await trio.sleep(max(due - perf_counter(), 0))
            values = [
                b"%012d%020d%b" % (each, int(due * 1e9), self._filler)
                for each in range(number, number + taken)
            ]
            if order.batch == 1:
                await self._queue.send(values[0])
            else:
                await self._queue.send_batch(values)
            self._did("SendMessage", due)
            self._acknowledged += taken
            self._note_end()

    async def _work(self) -> None:
        delivered = self._seconds.setdefault("delivered", [])
        while True:
            messages = await self._queue.receive(self._order.batch, wait=_WAIT_S)
            self._requests += 1
            now = perf_counter()
            delivered += (now - due_of(message.value) for message in messages)
            if len(messages) == 1:
                await self._queue.delete(messages[0])
            elif messages:
                await self._queue.delete_batch(messages)
            self._did("DeleteMessage", now)
            self._deleted += len(messages)
            self._note_end()

    def _did(self, kind: str, since: float) -> None:
        self._requests += 1
        self._seconds[kind].append(perf_counter() - since)

    def _note_end(self) -> None:
        order = self._order
        is_sent = not order.senders or self._acknowledged >= order.count
        if is_sent and (not order.workers or self._deleted >= order.count):
            self._is_done.set()


def due_of(value: bytes | None) -> float:
    """Return when a message was due, by the clock of the machine in seconds."""
    assert value is not None
    first, digits = _HEAD_DIGITS
    return int(value[first : first + digits]) / 1e9


async def _main(order: SqsOrder) -> None:
    addresses = ",".join(f"{host}:{port}" for host, port in order.addresses)
    async with tidelog.connect(addresses) as client:
        await client.admin.describe_queues(order.queues)
        load = _NativeLoad(order, client)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        result = await load.run()
    sys.stdout.write(json.dumps(asdict(result)) + "\n")


def run(arguments: Sequence[str]) -> None:
    """Run the load of an order in JSON."""
    trio.run(_main, SqsOrder(**json.loads(arguments[0])))


if __name__ == "__main__":
    run(sys.argv[1:])
