"""Client that writes transactions, each of which exists once or not at all."""

from contextlib import suppress
from random import Random
from typing import Final, final

import trio

from tests.simulation.broker.readers import BACKOFF_S, PATIENCE_S
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.broker.transactions import Contents, Ledger, TransactionWriter
from tests.simulation.cluster.machines import addresses
from tests.simulation.cluster.plans import ClusterPlan
from tests.simulation.machine.process import Process
from tidelog.client.client import Client, connect
from tidelog.client.consumer.consumer import Consumer
from tidelog.wire.errors import TidelogError, TopicExistsError

TOPIC: Final = "staged-life"


@final
class TransactionClient:
    """Resumes the current transaction after each restart."""

    def __init__(self, plan: ClusterPlan, random: Random, sometimes: Sometimes) -> None:
        """Take the pause between two transactions from the plan."""
        self.ledger = Ledger()
        self._plan = plan
        self._sometimes = sometimes
        self._is_founded = False
        self.writer = TransactionWriter(
            "stager", random, self.ledger, topic=TOPIC, partition_count=plan.partition_count
        )

    async def run(self, process: Process) -> None:
        """Work until told to stop."""
        pause_s = self._plan.stage_pause_s
        assert pause_s is not None, "the plan has transactions"
        while not self._is_founded or not self.writer.should_stop:
            try:
                async with connect(
                    addresses(self._plan), env=process.env, request_timeout=PATIENCE_S
                ) as client:
                    if not self._is_founded:
                        await self._found(client)
                    await self.writer.run(client, pause_s=pause_s)
            except TidelogError:
                await trio.sleep(BACKOFF_S)
        self._note_what_was_reached()

    async def check(self, process: Process) -> None:
        """Read all records, and compare them with the requested transactions.

        Raises:
            ViolationError: A transaction is lost, repeated, partial or unrequested.
        """
        while True:
            try:
                async with (
                    connect(addresses(self._plan), env=process.env) as client,
                    client.consumer(TOPIC, auto_offset_reset="earliest") as consumer,
                ):
                    found = await _read_all(consumer)
                    break
            except TidelogError:
                await trio.sleep(BACKOFF_S)
        self.ledger.check(found)

    async def _found(self, client: Client) -> None:
        with suppress(TopicExistsError):  # The reply to an earlier attempt was lost.
            await client.admin.create_topic(
                TOPIC,
                self._plan.partition_count,
                replication_factor=self._plan.replication_factor,
                config=self._plan.topic_settings,
            )
        self._is_founded = True

    def _note_what_was_reached(self) -> None:
        if self.ledger.committed:
            self._sometimes.reached("transaction committed")
        if self.ledger.dropped:
            self._sometimes.reached("transaction aborted")
        if self.ledger.gone_count:
            self._sometimes.reached("transaction too old")


async def _read_all(consumer: Consumer) -> Contents:
    """Return the values of all partitions, in order."""
    found: Contents = {}
    async for batch in consumer.batches(await consumer.end_offsets()):
        values = [record.value for record in batch.records() if record.value is not None]
        found.setdefault(batch.partition, []).extend(values)
    return found
