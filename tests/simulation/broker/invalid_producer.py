"""Client that sends invalid batches: behind a sequence gap, or with an old producer epoch."""

from typing import final

import trio

from tests.simulation.broker.readers import BACKOFF_S, PATIENCE_S, with_connection
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.broker.writers import ask_to_produce
from tests.simulation.checkers.log_checkers import TRESPASS
from tests.simulation.checkers.run_history import Acknowledged, RunHistory, SentRecord
from tests.simulation.machine.process import Process
from tidelog.wire.batch.record_batch import Columns, encode_batch
from tidelog.wire.errors import FencedProducerError, OutOfOrderSequenceError, from_wire
from tidelog.wire.messages.produce import (
    Acks,
    InitProducerRequest,
    PartitionAppended,
    PartitionBatch,
    ProduceRequest,
)
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

_ACK_TIMEOUT_MS = 1000
_TIMESTAMP_MS = 1_700_000_000_000
_FAR_SEQUENCE = 1_000_000


@final
class InvalidProducer:
    """Appends a valid record, and then an invalid one."""

    def __init__(
        self,
        name: str,
        run_history: RunHistory,
        sometimes: Sometimes,
        *,
        topic_id: bytes,
        dice: float,
    ) -> None:
        """Write to partition 0; `dice` chooses the kind of error."""
        self.should_stop = False
        self._name = name
        self._run_history = run_history
        self._sometimes = sometimes
        self._topic_id = topic_id
        self._leaves_gap = dice < 0.5
        self._producer_id = 0
        self._epoch = 0
        self._record_count = 0
        self._steps = [self._send_good, self._send_bad]
        if not self._leaves_gap:
            self._steps[1:1] = [self._raise_epoch, self._send_good]
        self._record: SentRecord | None = None

    async def run(self, process: Process) -> None:
        """Send both records, or stop early when told to."""
        await with_connection(process, self._trespass)

    async def _trespass(self, connection: RpcConnection) -> None:
        while self._steps and not self.should_stop:
            with trio.fail_after(PATIENCE_S):
                if self._producer_id == 0:
                    reply = await connection.ask(api.INIT_PRODUCER, InitProducerRequest())
                    self._producer_id = reply.producer_id
                is_done = await self._steps[0](connection)
            if is_done:
                self._record = None
                self._steps.pop(0)
            else:
                await trio.sleep(BACKOFF_S)

    async def _raise_epoch(self, connection: RpcConnection) -> bool:
        request = InitProducerRequest(self._producer_id, 0)
        self._epoch = (await connection.ask(api.INIT_PRODUCER, request)).producer_epoch
        return True

    async def _send_good(self, connection: RpcConnection) -> bool:
        record = self._record or self._next_record(b"/as it should be")
        asked_at = trio.current_time()
        result = await self._produce(connection, record, epoch=self._epoch, sequence=0)
        if result.error is not None:
            return False
        self._run_history.acknowledged(
            Acknowledged(record, result.base_offset, result.ack_level, asked_at)
        )
        return True

    async def _send_bad(self, connection: RpcConnection) -> bool:
        record = self._record or self._next_record(TRESPASS)
        asked_at = trio.current_time()
        sequence = _FAR_SEQUENCE if self._leaves_gap else 1
        result = await self._produce(connection, record, epoch=0, sequence=sequence)
        if result.error is None:
            self._run_history.acknowledged(
                Acknowledged(record, result.base_offset, result.ack_level, asked_at)
            )
            return True
        error = from_wire(result.error)
        if isinstance(error, (OutOfOrderSequenceError, FencedProducerError)):
            self._sometimes.reached("gap refused" if self._leaves_gap else "old epoch refused")
            return True
        return False

    async def _produce(
        self, connection: RpcConnection, record: SentRecord, *, epoch: int, sequence: int
    ) -> PartitionAppended:
        encoded = bytes(
            encode_batch(
                Columns(1, values=[record.value]),
                first_timestamp_ms=_TIMESTAMP_MS,
                producer_id=self._producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
        )
        entry = PartitionBatch(self._topic_id, record.partition, len(encoded))
        request = ProduceRequest(Acks.ALL, _ACK_TIMEOUT_MS, [entry])
        (result,) = (await ask_to_produce(connection, request, [encoded])).results
        return result

    def _next_record(self, ending: bytes) -> SentRecord:
        number = self._record_count
        self._record_count += 1
        value = f"{self._name}/0/{number}".encode() + ending
        self._record = SentRecord(self._name, 0, number, value)
        self._run_history.sent(self._record)
        return self._record
