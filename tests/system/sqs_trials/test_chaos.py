"""Brokers and fronts are killed under load: nothing acknowledged is lost or comes back.

`TIDELOG_CHAOS_SECONDS` and `TIDELOG_CHAOS_SEED` choose another length and other faults.
"""

import os
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final, final

import pytest
import trio

from tests.system.integration.nodes import Nodes
from tests.system.sqs_trials.front_processes import FrontProcesses
from tests.system.sqs_trials.ledger import Delivery, Ledger
from tests.system.sqs_trials.secured import FRONT_OPTIONS, access_key, secured_options
from tests.system.sqs_trials.sqs_connection import AccessKey, Refused, Reply, SqsConnection

SECONDS: Final = float(os.environ.get("TIDELOG_CHAOS_SECONDS", "60"))
SEED: Final = int(os.environ.get("TIDELOG_CHAOS_SEED", "1"))
FAULTS: Final = ("broker", "front", "broker", "stop front", "pause", "two brokers")
VISIBILITY_S: Final = 6
GROUPS: Final = 6
RECEIVERS: Final = 4
BETWEEN_SENDS_S: Final = 0.2
FRONTS: Final = 3
"""Number of fronts; the last one is never killed."""
GROWTH_KB_MAX: Final = 20_000
FIFO: Final = {"FifoQueue": "true"}
FAST: Final = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
QUEUES: Final = {"plain": {}, "ordered.fifo": FIFO, "fast.fifo": FIFO | FAST}
RULES: Final = (
    "create,describe,send,receive,settle queue *",
    "create topic *",
)


@final
class Chaos:
    """Three brokers, three fronts, and clients of a standard queue and of two FIFO queues."""

    def __init__(self, nodes: Nodes, fronts: FrontProcesses, key: AccessKey | None) -> None:
        self.nodes = nodes
        self.fronts = fronts
        self.answers: Counter[str] = Counter()
        self.ledgers: list[Ledger] = []
        self.gaps: list[tuple[float, str]] = []
        """Longest time without an acknowledged send, in seconds, at each fault."""
        self._random = Random(SEED)
        self._key = key
        self._is_sending = True
        self._acknowledged_at: list[float] = []
        self._sent_more = trio.Event()

    def connection(self) -> SqsConnection:
        """Return a new connection."""
        return SqsConnection(self.fronts.ports, self._random, log=self.answers, key=self._key)

    async def run(self) -> None:
        """Send, receive and delete while faults come; return when the queues are empty."""
        connection = self.connection()
        for name, attributes in QUEUES.items():
            given = attributes | {"VisibilityTimeout": str(VISIBILITY_S)}
            reply = await connection.call("CreateQueue", QueueName=name, Attributes=given)
            self.ledgers.append(Ledger(VISIBILITY_S, "FifoQueue" in given, reply["QueueUrl"]))
        async with trio.open_nursery() as nursery:
            for ledger in self.ledgers:
                for group in range(GROUPS):
                    nursery.start_soon(self._send, ledger, group)
                for _ in range(RECEIVERS):
                    nursery.start_soon(self._receive, ledger)
            await self._inject_faults()
            self._is_sending = False
        await connection.close()

    async def _inject_faults(self) -> None:
        end, turn = trio.current_time() + SECONDS, 0
        while trio.current_time() < end:
            await trio.sleep(self._random.uniform(2, 5))
            kind, began, before = FAULTS[turn % len(FAULTS)], trio.current_time(), self._sent_count
            await self._inject(kind, turn % (FRONTS - 1))
            count = self._sent_count + GROUPS
            while self._sent_count < count:
                await self._sent_more.wait()
            times = [began, *self._acknowledged_at[before:]]
            self.gaps.append((max(second - first for first, second in pairwise(times)), kind))
            turn += 1

    @property
    def _sent_count(self) -> int:
        return len(self._acknowledged_at)

    async def _inject(self, kind: str, front: int) -> None:
        """Do a fault, and undo it."""
        nodes, random = self.nodes, self._random
        chosen = random.sample(nodes.ids, 2)
        if kind == "front":
            await self.fronts.kill(front)
            await trio.sleep(random.uniform(0, 1))
            await self.fronts.start(front)
        elif kind == "stop front":
            await self.fronts.end(front)
            await self.fronts.start(front)
        elif kind == "pause":
            nodes.stop(chosen[0])
            await trio.sleep(random.uniform(1, 6))
            nodes.go_on(chosen[0])
        else:
            killed = chosen if kind == "two brokers" else chosen[:1]
            for node_id in killed:
                await nodes.kill_and_wait(node_id)
            await trio.sleep(random.uniform(0, 1))
            await nodes.start(*killed)

    async def _send(self, ledger: Ledger, group: int) -> None:
        """Send messages of a group, single ones and batches, until the sending ends."""
        connection, number = self.connection(), 0
        while self._is_sending:
            count = self._random.choice((1, 10))
            numbers = range(number, number + count)
            entries = {str(each): _entry(ledger, group, each) for each in numbers}
            number += count
            while entries:
                for sent in await self._sent(connection, ledger, list(entries.values())):
                    ledger.sent[sent["MessageId"]] = entries.pop(sent["Id"])["MessageBody"]
                    self._note_sent()
            await trio.sleep(self._random.uniform(0, BETWEEN_SENDS_S))
        await connection.close()

    async def _sent(
        self, connection: SqsConnection, ledger: Ledger, entries: list[Reply]
    ) -> list[Reply]:
        """Send messages, one by `SendMessage`; return those that were acknowledged."""
        if len(entries) == 1:
            fields = {name: value for name, value in entries[0].items() if name != "Id"}
            reply = await connection.call("SendMessage", QueueUrl=ledger.url, **fields)
            return [reply | {"Id": entries[0]["Id"]}]
        reply = await connection.call("SendMessageBatch", QueueUrl=ledger.url, Entries=entries)
        self._note_failed(reply)
        return list(reply.get("Successful", ()))

    def _note_sent(self) -> None:
        self._acknowledged_at.append(trio.current_time())
        more, self._sent_more = self._sent_more, trio.Event()
        more.set()

    async def _receive(self, ledger: Ledger) -> None:
        """Receive and delete until the queue stays empty after the end of the sending."""
        connection, idle_since = self.connection(), trio.current_time()
        while self._is_sending or trio.current_time() < idle_since + 2.5 * VISIBILITY_S:
            asked_at = trio.current_time()
            reply = await connection.call(
                "ReceiveMessage",
                QueueUrl=ledger.url,
                MaxNumberOfMessages=self._random.choice((1, 10)),
                WaitTimeSeconds=self._random.choice((0, 1, 2)),
                MessageSystemAttributeNames=["All"],
            )
            messages = reply.get("Messages", [])
            if not messages:
                await trio.sleep(0.02)
                continue
            idle_since = trio.current_time()
            ledger.deliveries += [_delivery(each, asked_at, idle_since) for each in messages]
            if self._random.random() > 0.04:  # Else a receiver that dies.
                await self._delete(connection, ledger, messages)
        await connection.close()

    async def _delete(
        self, connection: SqsConnection, ledger: Ledger, messages: list[Reply]
    ) -> None:
        now = trio.current_time()
        for each in messages:
            ledger.deleting.setdefault(each["MessageId"], now)
        if len(messages) == 1:
            handle = messages[0]["ReceiptHandle"]
            try:
                await connection.call("DeleteMessage", QueueUrl=ledger.url, ReceiptHandle=handle)
            except Refused as refusal:
                if "has expired" not in str(refusal):  # The delete took long, in a FIFO queue.
                    raise
                return
            deleted = messages
        else:
            entries = [
                {"Id": str(place), "ReceiptHandle": each["ReceiptHandle"]}
                for place, each in enumerate(messages)
            ]
            reply = await connection.call(
                "DeleteMessageBatch", QueueUrl=ledger.url, Entries=entries
            )
            self._note_failed(reply)
            deleted = [messages[int(each["Id"])] for each in reply.get("Successful", ())]
        for each in deleted:
            ledger.deleted.setdefault(each["MessageId"], trio.current_time())

    def _note_failed(self, reply: Reply) -> None:
        self.answers.update(f"entry {each['Code']}" for each in reply.get("Failed", ()))


def _entry(ledger: Ledger, group: int, number: int) -> Reply:
    body = f"g{group}/{number}"
    entry = {"Id": str(number), "MessageBody": body}
    if ledger.is_fifo:
        entry |= {"MessageGroupId": f"g{group}", "MessageDeduplicationId": body}
    return entry


def _delivery(message: Reply, asked_at: float, came_at: float) -> Delivery:
    attributes = message["Attributes"]
    return Delivery(
        message["MessageId"],
        message["Body"],
        int(attributes["ApproximateReceiveCount"]),
        int(attributes.get("SequenceNumber", 0)),
        asked_at,
        came_at,
    )


@asynccontextmanager
async def chaos(folder: Path, *, is_secured: bool = False) -> AsyncGenerator[Chaos, None]:
    """Run brokers and fronts, and kill them at the end."""
    options = secured_options(folder) if is_secured else []
    async with trio.open_nursery() as nursery:
        nodes = Nodes(folder / "brokers", nursery, *options)
        await nodes.start(*nodes.ids)
        key = await access_key(folder, nodes.addresses, RULES) if is_secured else None
        front_options = FRONT_OPTIONS if is_secured else ("--no-auth",)
        fronts = FrontProcesses(nodes.addresses, FRONTS, *front_options, logs=folder)
        try:
            for number in range(FRONTS):
                await fronts.start(number)
            yield Chaos(nodes, fronts, key)
        finally:
            with trio.CancelScope(shield=True):
                await fronts.stop()
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_secured", [False, True], ids=["open", "access-keys"])
async def test_nothing_acknowledged_is_lost_and_nothing_comes_back(
    is_secured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    async with chaos(tmp_path, is_secured=is_secured) as trial:
        before = trial.fronts.sizes(FRONTS - 1)
        await trial.run()
        after = trial.fronts.sizes(FRONTS - 1)
    log = "".join((tmp_path / f"front-{number}.log").read_text() for number in range(FRONTS))
    problems = [line for ledger in trial.ledgers for line in ledger.problems()]
    _report(trial, before, after)

    assert not problems, problems[:5]
    assert "Traceback" not in log, log
    answers = {each for each in trial.answers if not each.startswith("lost")}
    expected = {"503 ServiceUnavailable", "entry ServiceUnavailable", "entry InvalidParameterValue"}
    assert answers <= expected | {"400 InvalidParameterValue"}, trial.answers
    assert after[1] <= before[1] + 10, "a front has left files open"
    assert after[0] - before[0] < GROWTH_KB_MAX


def _report(trial: Chaos, before: tuple[int, int], after: tuple[int, int]) -> None:
    for each in trial.ledgers:
        again = sum(delivery.receive_count > 1 for delivery in each.deliveries)
        sys.stdout.write(
            f"{each.url}: {len(each.sent)} sent, {len(each.deliveries)} received ({again} again),"
            f" {len(each.deleted)} deleted\n"
        )
    longest, kind = max(trial.gaps)
    sys.stdout.write(
        f"{len(trial.gaps)} faults; {longest:.1f} s without a send at most ({kind});"
        f" answers {dict(trial.answers)}; kB and open files of a front {before} to {after}\n"
    )
