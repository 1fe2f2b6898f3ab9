"""Fronts stop under load, again and again: no message stays in flight.

`TIDELOG_STOPS` chooses another number of stops.
"""

import math
import os
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final, final

import pytest
import trio

from tests.system.integration.processes import serving
from tests.system.sqs_trials.front_processes import FrontProcesses
from tests.system.sqs_trials.secured import FRONT_OPTIONS, access_key, secured_options
from tests.system.sqs_trials.sqs_connection import AccessKey, Reply, SqsConnection

STOPS: Final = int(os.environ.get("TIDELOG_STOPS", "10"))
SENDERS: Final = 4
RECEIVERS: Final = 24
GROUPS: Final = 200
BETWEEN_STOPS: Final = 300
"""Messages that are received before a front stops."""
RULES: Final = ("create,describe,send,receive,settle queue *", "create topic *")
FAST: Final = {
    "FifoQueue": "true",
    "DeduplicationScope": "messageGroup",
    "FifoThroughputLimit": "perMessageGroupId",
}
QUEUES: Final = {"plain": {}, "fast.fifo": FAST}


@final
class Load:
    """Senders and receivers of a queue; each goes to the other front when its front stops."""

    def __init__(self, ports: list[int], key: AccessKey | None) -> None:
        self.received_count = 0
        self.url = ""
        self._ports = ports
        self._key = key
        self._random = Random(1)
        self._is_sending = True
        self._sent_count = 0
        self._received_more = trio.Event()

    def connection(self) -> SqsConnection:
        """Return a new connection."""
        return SqsConnection(self._ports, self._random, log=Counter(), key=self._key)

    async def create(self, name: str) -> None:
        """Create the queue."""
        attributes = QUEUES[name] | {"VisibilityTimeout": "3600"}
        connection = self.connection()
        reply = await connection.call("CreateQueue", QueueName=name, Attributes=attributes)
        self.url = reply["QueueUrl"]
        await connection.close()

    async def run(self) -> None:
        """Send, receive and delete until `end`; then receive what is left."""
        async with trio.open_nursery() as nursery:
            for _ in range(SENDERS):
                nursery.start_soon(self._send)
            for _ in range(RECEIVERS):
                nursery.start_soon(self._receive)

    def end(self) -> None:
        """Send no more."""
        self._is_sending = False

    async def received(self, count: int) -> None:
        """Wait until so many further messages are received."""
        count += self.received_count
        while self.received_count < count:
            await self._received_more.wait()

    async def in_flight_count(self) -> int:
        """Return the number of messages in flight."""
        connection, name = self.connection(), "ApproximateNumberOfMessagesNotVisible"
        reply = await connection.call(
            "GetQueueAttributes", QueueUrl=self.url, AttributeNames=[name]
        )
        await connection.close()
        return int(reply["Attributes"][name])

    async def _send(self) -> None:
        connection = self.connection()
        while self._is_sending:
            entries = [self._entry() for _ in range(self._random.choice((1, 10)))]
            await connection.call("SendMessageBatch", QueueUrl=self.url, Entries=entries)
        await connection.close()

    def _entry(self) -> Reply:
        self._sent_count += 1
        number = str(self._sent_count)
        entry: Reply = {"Id": number, "MessageBody": number}
        if self.url.endswith(".fifo"):
            group = f"g{self._random.randrange(GROUPS)}"
            entry |= {"MessageGroupId": group, "MessageDeduplicationId": number}
        return entry

    async def _receive(self) -> None:
        connection = self.connection()
        messages: list[Reply] = []
        while self._is_sending or messages:
            reply = await connection.call(
                "ReceiveMessage",
                QueueUrl=self.url,
                MaxNumberOfMessages=self._random.choice((1, 10)),
                WaitTimeSeconds=self._random.choice((0, 1, 20)) if self._is_sending else 1,
            )
            messages = reply.get("Messages", [])
            if messages:
                entries = [
                    {"Id": str(place), "ReceiptHandle": each["ReceiptHandle"]}
                    for place, each in enumerate(messages)
                ]
                await connection.call("DeleteMessageBatch", QueueUrl=self.url, Entries=entries)
                self.received_count += len(messages)
                more, self._received_more = self._received_more, trio.Event()
                more.set()
        await connection.close()


@pytest.mark.parametrize("name", QUEUES)
@pytest.mark.parametrize("is_secured", [False, True], ids=["open", "access-keys"])
async def test_a_front_that_stops_leaves_no_message_in_flight(
    name: str, is_secured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    options = secured_options(tmp_path) if is_secured else ()
    async with serving(tmp_path / "data", *options, deadline_s=math.inf) as broker:
        key = await access_key(tmp_path, broker.address, RULES) if is_secured else None
        front_options = FRONT_OPTIONS if is_secured else ("--no-auth",)
        fronts = FrontProcesses(broker.address, 2, *front_options)
        try:
            for number in range(2):
                await fronts.start(number)
            load = Load(fronts.ports, key)
            await load.create(name)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load.run)
                for turn in range(STOPS):
                    await load.received(BETWEEN_STOPS)
                    await fronts.end(turn % 2)
                    await fronts.start(turn % 2)
                load.end()
            in_flight_count = await load.in_flight_count()
        finally:
            with trio.CancelScope(shield=True):
                await fronts.stop()
    sys.stdout.write(f"{load.received_count} received, {in_flight_count} in flight\n")

    assert in_flight_count == 0
