"""Client that sends requests to any broker for any partition, leader or not.

Clients of the library send to leaders only, as far as they know. They would hardly ever reveal a
broker that still acts as a leader after it was deposed.
"""

from random import Random
from typing import final

import trio

from tests.simulation.broker.readers import BACKOFF_S, PATIENCE_S
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.broker.writers import Values, ask_to_produce
from tests.simulation.checkers.run_history import Acknowledged, RunHistory
from tests.simulation.cluster.cluster_history import ClusterHistory, Served
from tests.simulation.cluster.machines import PORT, host_of
from tests.simulation.cluster.plans import ClusterPlan
from tests.simulation.cluster.replica_log import Appended, ToldEnd
from tests.simulation.machine.clock import EPOCH_MS
from tests.simulation.machine.process import Process
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.errors import (
    BrokerError,
    LeaderNotAvailableError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
    RequestTimedOutError,
    TidelogError,
    UnknownTopicIdError,
    from_wire,
)
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.messages.offset_ranges import ListOffsetsRequest, OffsetQuery
from tidelog.wire.messages.produce import Acks, PartitionBatch, ProduceRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection, open_rpc

_WRITES = 0.4
_ENDS = 0.15
_LOOKS = 0.2
_ACK_TIMEOUT_MS = 1000
_REFUSALS = (NotEnoughReplicasError, UnknownTopicIdError)
"""Errors before any append. A leader that is deposed while it waits for followers returns
`NotLeaderError`, and one that removes its replica `LeaderNotAvailableError`; both have appended."""


@final
class StrayClient:
    """Keeps a connection to every broker, and sends each of them requests periodically."""

    def __init__(
        self,
        plan: ClusterPlan,
        values: Values,
        run_history: RunHistory,
        *,
        cluster_history: ClusterHistory,
        sometimes: Sometimes,
        topic_id: bytes,
    ) -> None:
        """Send the records of `values`."""
        self.should_stop = False
        self._plan = plan
        self._values = values
        self._run_history = run_history
        self._cluster_history = cluster_history
        self._sometimes = sometimes
        self._topic_id = topic_id

    async def run(self, process: Process) -> None:
        """Work until told to stop."""
        async with trio.open_nursery() as nursery:
            for node_id in self._plan.node_ids:
                nursery.start_soon(self._visit, process, node_id)

    async def _visit(self, process: Process, node_id: int) -> None:
        while not self.should_stop:
            with trio.move_on_after(PATIENCE_S) as patience:
                try:
                    async with open_rpc(
                        process.env.network,
                        host_of(node_id),
                        PORT,
                        client_id=process.name,
                        client_version="1",
                    ) as connection:
                        while not self.should_stop:
                            await self._ask(connection, node_id, process.env.random)
                            patience.deadline = trio.current_time() + PATIENCE_S
                except TidelogError:
                    pass
            await trio.sleep(BACKOFF_S)

    async def _ask(self, connection: RpcConnection, node_id: int, random: Random) -> None:
        pause_s = self._plan.visit_pause_s
        assert pause_s is not None, "the plan has a stray client"
        await trio.sleep(min(random.expovariate(1 / pause_s), PATIENCE_S / 2))
        dice = random.random()
        if dice < _WRITES:
            await self._write(connection, node_id)
        elif dice < _WRITES + _ENDS:
            await self._ask_for_end(connection, node_id)
        elif dice < _WRITES + _ENDS + _LOOKS:
            for topic in (await connection.ask(api.METADATA, MetadataRequest(None))).topics:
                self._cluster_history.told_created(topic.name, topic.topic_id)
        else:
            await self._read(connection, node_id)

    async def _read(self, connection: RpcConnection, node_id: int) -> None:
        partition = self._values.choose_partition()
        asked_at = trio.current_time()
        wanted = PartitionFetch(self._topic_id, partition, 0, 1)
        results, _ = await connection.call(
            api.FETCH,
            FetchRequest(0, 1, 1, [wanted]),
            take=lambda reply, data: (reply.results, len(data)),
        )
        (result,) = results
        if result.error is None:
            self._cluster_history.served(Served(node_id, (self._topic_id, partition), asked_at))
        else:
            self._note_refusal(from_wire(result.error))

    async def _ask_for_end(self, connection: RpcConnection, node_id: int) -> None:
        place = (self._topic_id, self._values.choose_partition())
        asked_at = trio.current_time()
        wanted = OffsetQuery(*place)
        reply = await connection.ask(api.LIST_OFFSETS, ListOffsetsRequest([wanted]))
        (found,) = reply.partitions
        if found.error is not None:
            self._note_refusal(from_wire(found.error))
        elif found.has_caught_up:
            self._cluster_history.served(Served(node_id, place, asked_at))
            self._cluster_history.told_end(ToldEnd(node_id, place, found.high_watermark, asked_at))

    async def _write(self, connection: RpcConnection, node_id: int) -> None:
        partition = self._values.choose_partition()
        record = self._values.next(partition)
        asked_at = trio.current_time()
        written_at_ms = EPOCH_MS + int(asked_at * 1000)  # Retention is a week.
        batch = encode_batch(Columns(1, values=[record.value]), first_timestamp_ms=written_at_ms)
        entry = PartitionBatch(self._topic_id, partition, len(batch))
        request = ProduceRequest(Acks.ALL, _ACK_TIMEOUT_MS, [entry])
        self._run_history.sent(record)
        (result,) = (await ask_to_produce(connection, request, [bytes(batch)])).results
        if result.error is None:
            self._cluster_history.served(Served(node_id, (self._topic_id, partition), asked_at))
            self._cluster_history.appended(Appended(node_id, (self._topic_id, partition), asked_at))
            self._cluster_history.known_end(
                (self._topic_id, partition), result.base_offset + 1, asked_at
            )
            self._run_history.acknowledged(
                Acknowledged(record, result.base_offset, result.ack_level, asked_at)
            )
            return
        error = from_wire(result.error)
        self._note_refusal(error)
        if isinstance(error, (NotEnoughReplicasAfterAppendError, RequestTimedOutError)):
            self._cluster_history.appended(Appended(node_id, (self._topic_id, partition), asked_at))
        if isinstance(error, _REFUSALS):
            self._run_history.refused(record)

    def _note_refusal(self, error: BrokerError) -> None:
        if isinstance(error, NotLeaderError):
            self._sometimes.reached("wrong broker")
        elif isinstance(error, NotEnoughReplicasError):
            self._sometimes.reached("too few in sync")
        elif isinstance(error, LeaderNotAvailableError):
            self._sometimes.reached("fenced broker asked")
