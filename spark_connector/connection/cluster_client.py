"""Blocking client of one cluster, for programs without trio.

Shell: owns connections. It serves one caller at a time; `spark_connector.connection.pool` lends
each caller its own client.
"""

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar, final

import msgspec

from tidelog.client.cluster.address import Address
from tidelog.client.cluster.backoff import Backoff
from tidelog.client.cluster.metadata import MetadataCache
from tidelog.client.cluster.wrong_replies import WrongReplies
from tidelog.client.topic_partition import TopicPartition
from tidelog.spark_connector.connection.broker_connection import BrokerConnection
from tidelog.spark_connector.connection.journals import is_journal
from tidelog.spark_connector.options import ConnectionOptions
from tidelog.wire.errors import (
    ConnectError,
    ConnectionLostError,
    LeaderNotAvailableError,
    NotControllerError,
    RetriableError,
    TidelogError,
    UnknownTopicError,
    WireFormatError,
    from_wire,
)
from tidelog.wire.messages.division import divided, divided_names
from tidelog.wire.messages.metadata import MetadataRequest, TopicMetadata
from tidelog.wire.messages.offset_ranges import (
    ListOffsetsRequest,
    OffsetQuery,
    PartitionOffsets,
    TopicOffsets,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api, ApiKey

RequestType = TypeVar("RequestType")
ReplyType = TypeVar("ReplyType")
Result = TypeVar("Result")

RETRIED_ERRORS: Final = (RetriableError, ConnectionLostError, WireFormatError)
"""Errors that may pass when an idempotent request is repeated."""
_BACKOFF_S = 0.05
_BACKOFF_MAX_S = 1.0
_CONNECT_MIN_S = 0.1
"""Least time for one of many brokers that share a deadline."""
_log = logging.getLogger(__name__)


@final
class BlockingClusterClient:
    """Connections to brokers, and the metadata of the cluster."""

    def __init__(self, options: ConnectionOptions) -> None:
        """Create a client that connects with its first request."""
        self.options = options
        self.metadata = MetadataCache()
        self._connections: dict[int, BrokerConnection] = {}
        self._backoff = Backoff(_BACKOFF_S, _BACKOFF_MAX_S, random.Random())
        self._wrong_replies = WrongReplies(self._backoff)

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight, so that another caller may use the client."""
        return all(
            connection.is_closed or connection.is_idle for connection in self._connections.values()
        )

    @property
    def sent_count(self) -> int:
        """Requests sent so far on the present connections."""
        return sum(connection.sent_count for connection in self._connections.values())

    @property
    def request_timeout_s(self) -> float:
        """Seconds to wait for one reply, and to retry a request."""
        return self.options.request_timeout_ms / 1000

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # -- choice of the broker -------------------------------------------------------------------

    def connection_to(self, node_id: int) -> BrokerConnection:
        """Return a connection to a broker; connect if there is none.

        Raises:
            ConnectError: The broker cannot be reached.
            RetriableError: The broker is not ready, or the metadata has no address for it.
        """
        connection = self._connections.get(node_id)
        if connection is not None and not connection.is_closed:
            return connection
        known = self.metadata.brokers.get(node_id)
        if known is None:
            raise LeaderNotAvailableError(f"the metadata has no address of node {node_id}")
        return self._connect(Address(known.host, known.port))

    def reach(self) -> None:
        """Connect to any broker within `client.connect.timeout.ms` in all, if none is connected.

        A driver calls this first, so that a user learns soon that no broker is there. Tasks wait
        longer for brokers, and so does a driver for a broker that accepts connections: `retry`.

        Raises:
            ConnectError: No broker can be reached; one line.
            TidelogError: A broker rejected the connection.
        """
        options = self.options
        limit_ms = min(options.connect_timeout_ms, options.request_timeout_ms)
        deadline = time.monotonic() + limit_ms / 1000
        failure_count = 0
        while True:
            try:
                self.any_connection(deadline=deadline)
            except ConnectionLostError:
                failure_count += 1
                delay_s = self._backoff.delay(failure_count)
                if time.monotonic() + delay_s >= deadline:
                    raise
                time.sleep(delay_s)
            except RetriableError:
                return  # A broker is there, and may be ready, or faster, when it is asked.
            else:
                return

    def any_connection(self, *, deadline: float | None = None) -> BrokerConnection:
        """Return a connection to any broker; brokers that sent wrong replies lately come last.

        Args:
            deadline: Time in monotonic seconds that the unconnected brokers share; by default each
                has `client.connect.timeout.ms`.

        Raises:
            ConnectError: No broker can be reached; one line.
            RetriableError: A broker was reached, and is not ready.
        """
        for connection in self._connections.values():
            if not connection.is_closed:
                return connection
        announced = [Address(each.host, each.port) for each in self.metadata.brokers.values()]
        failures: list[TidelogError] = []
        known = dict.fromkeys((*announced, *self.options.addresses))
        for place, address in enumerate(sorted(known, key=self._wrong_replies.retry_at)):
            timeout_s = None
            if deadline is not None:
                left_s = max(deadline - time.monotonic(), 0)
                timeout_s = max(left_s / (len(known) - place), _CONNECT_MIN_S)
            try:
                return self._connect(address, timeout_s)
            except (ConnectError, RetriableError) as error:
                failures.append(error)
        for failure in failures:
            if not isinstance(failure, ConnectError):
                raise failure
        raise ConnectError("; ".join(map(str, failures)))

    def leader_of(self, at: TopicPartition) -> tuple[bytes, BrokerConnection]:
        """Return the id of a topic, and a connection to the leader of one of its partitions.

        Raises:
            UnknownTopicError: There is no such topic.
            LeaderNotAvailableError: The partition has no leader now.
            TidelogError: The leader cannot be reached.
        """
        topic = self.topic(at.topic)
        leader_id = self.metadata.leader_of(at.topic, at.partition)
        if leader_id is None:
            self.metadata.forget([at.topic])
            self.refresh([at.topic])
            leader_id = self.metadata.leader_of(at.topic, at.partition)
        if leader_id is None:
            raise LeaderNotAvailableError(f"{at.topic}/{at.partition} has no leader now")
        return topic.topic_id, self.connection_to(leader_id)

    def topic(self, name: str) -> TopicMetadata:
        """Return the metadata of a topic; fetch it if it is not cached.

        Raises:
            UnknownTopicError: There is no such topic.
            TidelogError: No broker answered.
        """
        known = self.metadata.topic(name)
        if known is None:
            self.refresh([name])
            known = self.metadata.topic(name)
        if known is None:
            raise self.metadata.error(name) or UnknownTopicError(f"there is no topic {name!r}")
        return known

    def refresh(self, topics: Iterable[str]) -> None:
        """Fetch the metadata of the brokers and of these topics, once.

        Raises:
            TidelogError: No broker answered.
        """
        found: list[TopicMetadata] = []
        for names in divided(sorted(topics)):
            reply, _ = self.any_connection().call(
                api.METADATA, MetadataRequest(names), timeout_s=self.request_timeout_s
            )
            found += reply.topics
        self.metadata.apply(msgspec.structs.replace(reply, topics=found))

    # -- requests -------------------------------------------------------------------------------

    def pause(self, failure_count: int) -> None:
        """Wait for the backoff delay before a retry, after so many failures in a row."""
        time.sleep(self._backoff.delay(failure_count))

    def retry(self, attempt: Callable[[], Result]) -> Result:
        """Return the result of `attempt`; retry errors that may pass until the request timeout.

        Raises:
            TidelogError: The last failure.
        """
        deadline = time.monotonic() + self.request_timeout_s
        failure_count = 0
        while True:
            try:
                return attempt()
            except RETRIED_ERRORS:
                failure_count += 1
                delay_s = self._backoff.delay(failure_count)
                if time.monotonic() + delay_s >= deadline:
                    raise
                time.sleep(delay_s)
                self._refresh_metadata()

    def call_any(self, api_: Api[RequestType, ReplyType], request: RequestType) -> ReplyType:
        """Send an idempotent request to any broker; raises as `retry` does."""
        return self.retry(lambda: self._ask(self.any_connection(), api_, request))

    def call_controller(self, api_: Api[RequestType, ReplyType], request: RequestType) -> ReplyType:
        """Send an idempotent request to the controller; raises as `retry` does."""

        def attempt() -> ReplyType:
            if self.metadata.controller_id is None:
                self.refresh(())
            node_id = self.metadata.controller_id
            if node_id is None:
                raise NotControllerError("the cluster has no controller now")
            return self._ask(self.connection_to(node_id), api_, request)

        return self.retry(attempt)

    def topic_offsets(
        self,
        topics: Sequence[str] | None,
        *,
        with_sizes: bool = False,
        with_leader_epochs: bool = False,
        from_journals: bool = False,
    ) -> list[TopicOffsets]:
        """Return the offsets of topics, or all for `None`; skip unknown topics.

        One request takes 1,000 topics.

        With `from_journals`, `topics` names queues, and the offsets are those of their journals.

        Raises:
            TidelogError: No broker answered.
        """
        found: list[TopicOffsets] = []
        for names in divided_names(topics):
            request = ListOffsetsRequest(
                [],
                topics=names,
                with_sizes=with_sizes,
                from_journals=from_journals,
                with_leader_epochs=with_leader_epochs,
            )
            found += self.call_any(api.LIST_OFFSETS, request).topics
        return found

    def list_offsets(
        self, queries: Mapping[TopicPartition, OffsetQuery]
    ) -> dict[TopicPartition, PartitionOffsets]:
        """Return the offsets of partitions, each from its leader.

        All are partitions of topics, or all are partitions of journals.

        Raises:
            TidelogError: A broker rejected a query, or no broker answered.
        """
        return self.retry(lambda: self._list_offsets(queries))

    def _list_offsets(
        self, queries: Mapping[TopicPartition, OffsetQuery]
    ) -> dict[TopicPartition, PartitionOffsets]:
        by_connection: dict[BrokerConnection, list[TopicPartition]] = {}
        for at in queries:
            by_connection.setdefault(self.leader_of(at)[1], []).append(at)
        found: dict[TopicPartition, PartitionOffsets] = {}
        parts = [(each, part) for each, all_ in by_connection.items() for part in divided(all_)]
        for connection, partitions in parts:
            request = ListOffsetsRequest(
                [queries[at] for at in partitions], from_journals=is_journal(partitions[0].topic)
            )
            offsets = self._ask(connection, api.LIST_OFFSETS, request).partitions
            found.update(zip(partitions, offsets, strict=True))
        for at in queries:
            error = found[at].error
            if error is not None:
                raise from_wire(error)
        return found

    def _ask(
        self, connection: BrokerConnection, api_: Api[RequestType, ReplyType], request: RequestType
    ) -> ReplyType:
        reply, _ = connection.call(api_, request, timeout_s=self.request_timeout_s)
        return reply

    def _refresh_metadata(self) -> None:
        """Fetch the metadata again, because leaders may have changed."""
        names = self.metadata.topic_names
        try:
            self.refresh(names)
        except RETRIED_ERRORS:
            for connection in list(self._connections.values()):
                if not connection.is_idle:
                    connection.close()  # The next refresh may then choose another broker.

    def _connect(self, address: Address, timeout_s: float | None = None) -> BrokerConnection:
        """Return a connection to an address, after the backoff from wrong replies."""
        time.sleep(max(self._wrong_replies.retry_at(address) - time.monotonic(), 0))
        note = partial(self._note_wrong_reply, address)
        connection = BrokerConnection(
            address, self.options, timeout_s=timeout_s, on_wrong_reply=note
        )
        known = self._connections.get(connection.hello.node_id)
        if known is not None and not known.is_closed:
            connection.close()
            return known
        self._connections[connection.hello.node_id] = connection
        return connection

    def _note_wrong_reply(
        self, address: Address, suspects: Sequence[ApiKey], error: WireFormatError
    ) -> None:
        count = self._wrong_replies.add(address, suspects, error, now=time.monotonic())
        if count:
            _log.warning("%s (%d wrong replies since the last report)", error, count)
