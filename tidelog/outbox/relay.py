"""Relay: sends the rows of an outbox to the log, each once and in their order.

Shell: owns the store, whose calls run in worker threads, and the loop. `horizon` decides which rows
are settled, `position` what a restart continues with, `routing` which rows a topic takes.

A round reads the next rows, writes their range down as the next batch, stages them as the
transaction with its number, and commits. The next round writes down that the batch is committed. A
crash at any place leaves a batch whose rows are known: the next relay sends them again under the
same number, and the cluster commits one of the attempts.
"""

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar, final

import trio

from tidelog.client.client import Client
from tidelog.client.cluster.backoff import Backoff
from tidelog.client.config import ProducerConfig
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.outbox.errors import (
    DatabaseUnavailableError,
    OutboxError,
    RelayPositionError,
    RelaySupersededError,
)
from tidelog.outbox.horizon import Horizon, Writer
from tidelog.outbox.position import Position, check_table, is_committed
from tidelog.outbox.relay_options import RelayOptions
from tidelog.outbox.routing import RECORD_BYTES_MAX, Destination, Routed, Router, by_topic
from tidelog.outbox.rows import OutboxRow
from tidelog.outbox.store import BatchLimits, OutboxStore
from tidelog.wire.env.real.real_env import real_env, run_in_thread
from tidelog.wire.errors import (
    ConnectionLostError,
    DeliveryTimeoutError,
    InvalidRequestError,
    LogOfflineError,
    RetriableError,
    StaleTransactionError,
    TransactionGoneError,
    UnknownPartitionError,
    UnknownTopicError,
)

Result = TypeVar("Result")

_TIMEOUT_S: Final = 60.0
"""Timeout of the transactions: how long staged records of a dead relay stay."""
_LOCK_S: Final = 1.0
"""Seconds between two attempts to lock the table."""
_HELD_BACK_S: Final = 10.0
"""Seconds for which a transaction may hold rows back without a warning."""
_DELETE_S: Final = 60.0
"""Seconds between two rounds of deletions."""
_DELETE_ROWS: Final = 2_000
"""Rows of one deletion, so that it is short."""
_RENEWED_S: Final = 24 * 3600.0
"""Seconds without rows after which an empty batch is committed: the cluster forgets names that are
not used for 7 days, and a name that is known proves that the position is."""
_RETRY_S: Final = 0.1
_RETRY_MAX_S: Final = 5.0
_NO_LIMIT: Final = 1 << 62
_QUIET_S: Final = 0.002
"""Least seconds between two looks that find nothing."""
_PRODUCER: Final = ProducerConfig(buffer_memory=3 * RECORD_BYTES_MAX)
_PASSING: Final = (
    ConnectionLostError,
    DeliveryTimeoutError,
    LogOfflineError,
    RetriableError,
    TransactionGoneError,
)
"""Errors after which the same batch is sent again."""
_REFUSALS: Final = (InvalidRequestError, UnknownPartitionError, UnknownTopicError)
"""Errors of a topic that has changed since its destination was looked up."""


@final
class Relay:
    """Relays one outbox until it is cancelled."""

    def __init__(self, client: Client, store: OutboxStore, options: RelayOptions) -> None:
        """Relay from `store` to the cluster of `client`."""
        self._client = client
        self._store = store
        self._options = options
        self._backoff = Backoff(_RETRY_S, _RETRY_MAX_S, real_env().random)
        self._position = self._saved = Position("")
        """The position, and what the database has of it: a commit is written down later."""
        self._horizon = Horizon(0)
        self._router = Router("", None)
        self._destinations: dict[str, Destination] = {}
        self._committed_at = 0.0
        self._delete_at = 0.0
        self._warned_of: Writer | None = None

    async def run(self) -> None:
        """Relay without end; reconnect to the database and to the cluster as often as needed.

        Raises:
            DatabaseUnavailableError: The database cannot be reached at the start.
            OutboxError: The relay must not or cannot go on; the text says why.
        """
        failure_count, was_open = 0, False
        while True:
            try:
                await self._open()
                failure_count, was_open = 0, True
                while True:
                    await self._round()
            except RelaySupersededError as error:
                self._options.report(f"{error}; reading its position again")
            except DatabaseUnavailableError as error:
                await trio.lowlevel.checkpoint_if_cancelled()  # The interrupted call failed.
                if not was_open:
                    raise
                if not failure_count:
                    self._options.report(f"{error}; trying again")
            finally:
                with trio.CancelScope(shield=True):
                    await run_in_thread(self._store.close)
            failure_count += 1
            await trio.sleep(self._backoff.delay(failure_count))

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        """Return the result of calls of the store; if cancelled, interrupt them."""
        return await run_in_thread(work, interrupt=self._store.interrupt)

    async def _open(self) -> None:
        """Connect, wait for the lock, and complete the last batch."""
        store = self._store
        await self._in_thread(store.open)
        await self._lock()
        position = self._position = self._saved = await self._in_thread(store.position)
        last_id = await self._in_thread(store.last_id)
        found_at = await self._in_thread(partial(store.fingerprint, position.relayed_id))
        check_table(position, last_id=last_id, found_at=found_at)
        self._router = Router(position.name, self._options.dead_letter_topic)
        self._horizon = Horizon(position.end_id)
        if await self._is_committed(position):
            self._position = position.committed()
        else:
            whole = BatchLimits(_NO_LIMIT, _NO_LIMIT)
            read = partial(store.rows, position.relayed_id, position.end_id, whole)
            await self._commit(await self._in_thread(read))
        self._committed_at = trio.current_time()

    async def _lock(self) -> None:
        has_waited = False
        while not await self._in_thread(self._store.try_lock):
            if not has_waited:
                pid = await self._in_thread(self._store.relay_pid)
                whose = "" if pid is None else f" (server process {pid})"
                table = self._store.statements.table
                self._options.report(f"waiting: another relay{whose} has the outbox {table!r}")
                has_waited = True
            await trio.sleep(_LOCK_S)

    async def _is_committed(self, position: Position) -> bool:
        """Return whether the cluster has committed the last batch.

        Raises:
            RelayPositionError: The cluster and the database contradict each other.
            RelaySupersededError: Another relay, which has lost its lock, has gone on meanwhile.
        """
        ask = partial(self._client.admin.list_transactions, [position.name])
        listed = await self._until_done(ask)
        try:
            return is_committed(position, listed[0].last_transaction_id if listed else None)
        except RelayPositionError as error:
            if await self._in_thread(self._store.position) == position:
                raise
            raise RelaySupersededError("another relay has gone on with the outbox") from error

    async def _round(self) -> None:
        """Send the next rows; if there are none, wait for some."""
        now = trio.current_time()
        if now >= self._delete_at:
            await self._delete_old(now)
        rows = await self._in_thread(partial(self._next_rows, now))
        if rows:
            await self._send(rows)
        elif now - self._committed_at > _RENEWED_S:
            await self._plan(self._position.relayed_id, self._position.relayed_at)
            await self._commit([])
        else:
            self._warn_of_writer(now)
            await self._wait()

    def _next_rows(self, now: float) -> list[OutboxRow]:
        """Return the next rows; if there are none, write down what is committed."""
        store, after_id = self._store, self._position.relayed_id
        end_id = self._horizon.observe(store.observe(), now)
        rows = store.rows(after_id, end_id, self._options.limits) if end_id > after_id else []
        if not rows and self._position != self._saved:
            self._save(self._position)
        return rows

    def _save(self, position: Position) -> None:
        self._store.save(self._saved, position)
        self._position = self._saved = position

    async def _send(self, rows: list[OutboxRow]) -> None:
        """Send the rows up to the first one that no topic takes.

        Raises:
            OutboxRowError: That row is the first one.
        """
        routed = await self._route(rows)
        accepted = rows[: len(routed.records)]
        if not accepted:
            assert routed.refusal is not None, "there is a row"
            raise routed.refusal
        for each in routed.dead_letters:
            self._options.report(f"{each}: sent to {self._options.dead_letter_topic!r}")
        await self._plan(accepted[-1].row_id, accepted[-1].created_at_us)
        await self._commit(accepted, routed.records)

    async def _plan(self, last_id: int, last_at: int | None) -> None:
        """Write the next batch down."""
        await self._in_thread(partial(self._save, self._position.planned(last_id, last_at)))

    async def _commit(
        self, rows: Sequence[OutboxRow], records: Sequence[ProducerRecord] = ()
    ) -> None:
        """Commit the batch of the position: these rows, routed if `records` are given.

        Raises:
            OutboxRowError: A row cannot be sent.
            RelaySupersededError: Another relay has committed a later batch.
        """
        while True:
            if len(records) != len(rows):
                routed = await self._route(rows)
                if routed.refusal is not None:
                    raise routed.refusal
                records = routed.records
            try:
                await self._until_done(partial(self._attempt, records))
                break
            except StaleTransactionError as error:
                raise RelaySupersededError(
                    f"another relay has gone on with the outbox: {error}"
                ) from error
            except _REFUSALS as error:
                # A topic has changed since it was described.
                self._destinations.clear()
                routed = await self._route(rows)
                if routed.records == records and routed.refusal is None:
                    if not isinstance(error, UnknownPartitionError):
                        raise OutboxError(
                            f"rows {rows[0].row_id} to {rows[-1].row_id} cannot be sent: {error}"
                        ) from error
                    await trio.sleep(_RETRY_S)  # The metadata of the client are older.
                records = ()
        self._position = self._position.committed()
        self._committed_at = trio.current_time()

    async def _attempt(self, records: Sequence[ProducerRecord]) -> None:
        position = self._position
        transaction = self._client.transaction(position.name, position.batch, timeout=_TIMEOUT_S)
        async with transaction.task(_PRODUCER) as task:
            for topic, part in by_topic(records).items():
                await task.send_records(topic, part)
        await transaction.commit([task.result])

    async def _route(self, rows: Sequence[OutboxRow]) -> Routed:
        """Route rows by the topics that exist; a refusal is by their state of now."""
        names = self._router.topics_of(rows)
        known = names & self._destinations.keys()
        await self._describe(names - known)
        routed = self._router.route(rows, self._destinations)
        if known and (routed.dead_letters or routed.refusal is not None):
            await self._describe(known)
            routed = self._router.route(rows, self._destinations)
        return routed

    async def _describe(self, names: Iterable[str]) -> None:
        """Describe topics; rows for those that do not exist are refused."""
        for name in sorted(names):
            self._destinations.pop(name, None)
            describe = partial(self._client.admin.describe_topics, [name])
            with suppress(*_REFUSALS):
                (described,) = await self._until_done(describe)
                self._destinations[name] = Destination.of(described)

    async def _until_done(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Repeat a call of the cluster until it does not fail for a reason that may pass."""
        failure_count = 0
        while True:
            try:
                return await call()
            except _PASSING as error:
                failure_count += 1
                if failure_count == 1:
                    self._options.report(f"the cluster does not accept rows: {error}; trying again")
                await trio.sleep(self._backoff.delay(failure_count))

    async def _delete_old(self, now: float) -> None:
        keep_s = self._options.keep_s
        if keep_s is None:
            self._delete_at = math.inf
            return
        count = await self._in_thread(
            partial(
                self._store.delete,
                self._saved.relayed_id,
                older_than_s=keep_s,
                limit=_DELETE_ROWS,
            )
        )
        if count < _DELETE_ROWS:
            self._delete_at = now + _DELETE_S

    def _warn_of_writer(self, now: float) -> None:
        writer = self._horizon.holding_back(now, longer_than_s=_HELD_BACK_S)
        if writer is not None and writer != self._warned_of:
            what = "a prepared transaction" if writer.pid is None else f"process {writer.pid}"
            self._options.report(
                f"rows above {self._horizon.settled_id} wait for the transaction of {what}, which"
                f" has written to the outbox and is open for {_HELD_BACK_S:g} s or longer"
            )
        self._warned_of = writer

    async def _wait(self) -> None:
        """Wait for a notification, at most until the next poll."""
        await trio.sleep(_QUIET_S)
        if self._store.take_wakeup():
            return
        descriptor = self._store.fileno()
        with trio.move_on_after(self._options.poll_s):
            if descriptor is None:
                await trio.sleep_forever()
            else:
                await trio.lowlevel.wait_readable(descriptor)
