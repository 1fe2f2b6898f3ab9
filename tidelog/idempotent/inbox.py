"""Inbox: which messages a consumer has processed, in the database of their effects.

Shell: reads and writes with the application's own connection, in the transaction of the effect. So
the effect and its mark are committed together, or not at all.
"""

from collections.abc import Iterable, Sequence
from typing import Final, LiteralString, Protocol, final

from tidelog.client.consumer.fetch.record import Record, RecordBatch
from tidelog.client.topic_partition import TopicPartition
from tidelog.database.connections import (
    AsyncConnection,
    SyncConnection,
    execute,
    execute_async,
    rows_of,
    rows_of_async,
)
from tidelog.database.dialect import Row, checked_dialect, checked_style, checked_table
from tidelog.database.seconds import seconds_of
from tidelog.idempotent.statements import InboxStatements
from tidelog.wire.batch.message_id import message_id_in, record_id
from tidelog.wire.errors import ConfigError, TidelogError

ReadRecords = Record | RecordBatch
"""Records of one partition that a consumer has read in succession."""

_NAME_MAX: Final = 200


class Identified(Protocol):
    """A message of a queue or a record of a consumer, also of the blocking client."""

    @property
    def topic_id(self) -> bytes:
        """Id of the topic."""
        ...

    @property
    def partition(self) -> int:
        """Partition of the record."""
        ...

    @property
    def offset(self) -> int:
        """Offset in the partition."""
        ...

    @property
    def headers(self) -> Iterable[tuple[str, bytes]]:
        """Pairs of name and value."""
        ...


@final
class InboxPositionError(TidelogError):
    """These records were processed before, or the topic is another one: roll the effect back."""


def message_id_of(message: Identified) -> str:
    """Return the identity of a message, the same after dead-letter queues and redrives.

    It is the header `tidelog-message-id`, which the relay of an outbox, any application and each
    move of a message set; without it, topic id, partition and offset. So messages of a topic that
    was deleted and created again are different ones.

    Raises:
        ValueError: The message has neither the header nor the id of its topic.
    """
    found = message_id_in(message.headers)
    if found is not None:
        return found
    if not message.topic_id:
        raise ValueError("the message has no id: it was not read from a topic")
    return record_id(message.topic_id, message.partition, message.offset)


@final
class Inbox:
    """Marks of processed messages: `Inbox("billing", dialect="postgresql")`.

    Each consumer of the same messages needs a name of its own. Does no I/O by itself.

        with connection.transaction():
            if inbox.is_new(connection, message):
                ...                                    # the effect, with the same connection
        message.delete()                               # after the commit
    """

    def __init__(
        self,
        name: str,
        *,
        dialect: str = "postgresql",
        paramstyle: str | None = None,
        table: str = "tidelog_inbox",
    ) -> None:
        """Describe an inbox.

        Args:
            name: Name of the consumer, 1 to 200 characters.
            dialect: `postgresql` or `sqlite`.
            paramstyle: Placeholders of the application's driver: `format` (`%s`), `qmark` (`?`) or
                `dollar` (`$1`); by default that of psycopg or sqlite3.
            table: Name of the table, which all inboxes share, perhaps `SCHEMA.NAME`; positions are
                in the table `NAME_positions`.

        Raises:
            ConfigError: A name is not valid.
        """
        if not 1 <= len(name) <= _NAME_MAX:
            raise ConfigError(
                f"the name of an inbox has 1 to {_NAME_MAX} characters, not {len(name)}"
            )
        known = checked_dialect(dialect)
        self.name = name
        self._statements = InboxStatements(
            checked_table(table), known, checked_style(paramstyle, known)
        )

    def ddl(self) -> LiteralString:
        """Return the statements that create the tables; executing them again changes nothing."""
        return self._statements.ddl()

    def is_new(self, connection: SyncConnection, message: Identified) -> bool:
        """Mark a message as processed, and return whether it was not marked before.

        If another transaction has marked it and is still open, this waits for its end. If this
        transaction is rolled back, the message is not marked.

        Raises:
            ValueError: The message has no id; see `message_id_of`.
            Exception: The error of the driver.
        """
        parameters = [self.name, message_id_of(message)]
        return execute(connection, self._statements.insert_seen(), parameters) == 1

    async def is_new_async(self, connection: AsyncConnection, message: Identified) -> bool:
        """See `is_new`; for connections whose `execute` is awaited."""
        parameters = [self.name, message_id_of(message)]
        return await execute_async(connection, self._statements.insert_seen(), parameters) == 1

    def save(self, connection: SyncConnection, read: ReadRecords) -> None:
        """Move the position of the partition behind a record or batch, with its effect.

        A consumer that was presumed dead may process the same records as its successor. The first
        commit wins: the other consumer gets the error, and rolls its effect back.

        Raises:
            InboxPositionError: The position is beyond the first of these records: they were
                processed before; or it is of a topic that was deleted and created again.
            Exception: The error of the driver.
        """
        if execute(connection, self._statements.upsert_position(), self._moved(read)) != 1:
            place = [self.name, read.topic, read.partition]
            found = rows_of(connection, self._statements.select_position(), place)
            raise self._position_error(read, found)

    async def save_async(self, connection: AsyncConnection, read: ReadRecords) -> None:
        """See `save`; for connections whose `execute` is awaited."""
        moved = self._moved(read)
        if await execute_async(connection, self._statements.upsert_position(), moved) != 1:
            place = [self.name, read.topic, read.partition]
            found = await rows_of_async(connection, self._statements.select_position(), place)
            raise self._position_error(read, found)

    def positions(self, connection: SyncConnection) -> dict[TopicPartition, int]:
        """Return the offset of the next record to process in each partition that has a position.

        `for (topic, partition), offset in inbox.positions(connection).items():
        consumer.seek(topic, partition, offset)`
        """
        return _positions(rows_of(connection, self._statements.select_positions(), [self.name]))

    async def positions_async(self, connection: AsyncConnection) -> dict[TopicPartition, int]:
        """See `positions`; for connections whose `execute` is awaited."""
        query = self._statements.select_positions()
        return _positions(await rows_of_async(connection, query, [self.name]))

    def forget(self, connection: SyncConnection, *, older_than: str | float) -> int:
        """Delete old marks; return their number.

        A message that is delivered after its mark is deleted counts as new. So keep marks for
        longer than the topic keeps records, and than messages stay in dead-letter queues.

        Args:
            connection: Connection of the application.
            older_than: Age, such as `30d`, or seconds.

        Raises:
            ConfigError: It is no duration.
        """
        parameters = [self.name, seconds_of("older_than", older_than)]
        return execute(connection, self._statements.delete_seen(), parameters)

    async def forget_async(self, connection: AsyncConnection, *, older_than: str | float) -> int:
        """See `forget`; for connections whose `execute` is awaited."""
        parameters = [self.name, seconds_of("older_than", older_than)]
        return await execute_async(connection, self._statements.delete_seen(), parameters)

    def forget_topic(self, connection: SyncConnection, topic: str) -> None:
        """Delete the positions in a topic that was deleted and created again."""
        execute(connection, self._statements.delete_positions(), [self.name, topic])

    async def forget_topic_async(self, connection: AsyncConnection, topic: str) -> None:
        """See `forget_topic`; for connections whose `execute` is awaited."""
        await execute_async(connection, self._statements.delete_positions(), [self.name, topic])

    def _moved(self, read: ReadRecords) -> list[object]:
        first, end = _range_of(read)
        return [self.name, read.topic, read.partition, read.topic_id, end, first]

    def _position_error(self, read: ReadRecords, found: Sequence[Row]) -> InboxPositionError:
        where = f"inbox {self.name!r} cannot save {read.topic}/{read.partition}"
        ((topic_id, offset),) = found
        if bytes(topic_id) != read.topic_id:
            return InboxPositionError(
                f"{where}: the topic was deleted and created again, and offset {offset} is of the"
                " old one; roll back, and call forget_topic"
            )
        first, _ = _range_of(read)
        return InboxPositionError(
            f"{where}: the records from {first} on were processed before, up to {offset};"
            " roll back, and seek to the positions of the inbox"
        )


def _range_of(read: ReadRecords) -> tuple[int, int]:
    """Return the first offset, and the exclusive end."""
    if isinstance(read, Record):
        return read.offset, read.offset + 1
    return read.base_offset, read.next_offset


def _positions(rows: Iterable[Row]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): offset for topic, partition, offset in rows}
