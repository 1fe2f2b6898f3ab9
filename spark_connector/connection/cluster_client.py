"""The client of one cluster for programs without trio: every call blocks.

Shell: owns connections. One caller at a time; `spark_connector.connection.pool` gives each caller
its own.
"""

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar, final

from tidelog.client.cluster.address import Address
from tidelog.client.cluster.backoff import Backoff
from tidelog.client.cluster.metadata import MetadataCache
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
from tidelog.wire.messages.metadata import MetadataRequest, TopicMetadata
from tidelog.wire.messages.offset_ranges import (
    ListOffsetsRequest,
    OffsetQuery,
    PartitionOffsets,
    TopicOffsets,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api

RequestType = TypeVar("RequestType")
ReplyType = TypeVar("ReplyType")
Result = TypeVar("Result")

_BACKOFF_S = 0.05
_BACKOFF_MAX_S = 1.0


@final
class BlockingClusterClient:
    """Connections to brokers, and what they say about the cluster."""

    def __init__(self, options: ConnectionOptions) -> None:
        """Connect when something is asked."""
        self.options = options
        self.metadata = MetadataCache()
        self._connections: dict[int, BrokerConnection] = {}
        self._backoff = Backoff(_BACKOFF_S, _BACKOFF_MAX_S, random.Random())

    @property
    def is_idle(self) -> bool:
        """Whether no answer is owed by anybody, so that another caller may go on with it."""
        return all(
            connection.is_closed or connection.is_idle for connection in self._connections.values()
        )

    @property
    def sent_count(self) -> int:
        """Requests sent so far on the connections that there are."""
        return sum(connection.sent_count for connection in self._connections.values())

    @property
    def request_timeout_s(self) -> float:
        """How long one answer is waited for, and how long it is tried to get one."""
        return self.options.request_timeout_ms / 1000

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # -- whom to ask ----------------------------------------------------------------------------

    def connection_to(self, node_id: int) -> BrokerConnection:
        """Return a connection to a broker, made if need be.

        Raises:
            ConnectError: It cannot be reached.
            RetriableError: It is not ready, or nobody says where it is.
        """
        connection = self._connections.get(node_id)
        if connection is not None and not connection.is_closed:
            return connection
        known = self.metadata.brokers.get(node_id)
        if known is None:
            raise LeaderNotAvailableError(f"nobody says where node {node_id} is")
        return self._connect(Address(known.host, known.port))

    def any_connection(self) -> BrokerConnection:
        """Return a connection to any broker.

        Raises:
            ConnectError: None can be reached; one line.
            RetriableError: One was reached, and is not ready.
        """
        for connection in self._connections.values():
            if not connection.is_closed:
                return connection
        announced = [Address(each.host, each.port) for each in self.metadata.brokers.values()]
        failures: list[TidelogError] = []
        for address in dict.fromkeys((*announced, *self.options.addresses)):
            try:
                return self._connect(address)
            except (ConnectError, RetriableError) as error:
                failures.append(error)
        for failure in failures:
            if not isinstance(failure, ConnectError):
                raise failure
        raise ConnectError("; ".join(map(str, failures)))

    def leader_of(self, at: TopicPartition) -> tuple[bytes, BrokerConnection]:
        """Return the id of a topic, and a connection to who leads one of its partitions.

        Raises:
            UnknownTopicError: There is no such topic.
            LeaderNotAvailableError: Nobody leads it now.
            TidelogError: The leader cannot be reached.
        """
        topic = self.topic(at.topic)
        leader_id = self.metadata.leader_of(at.topic, at.partition)
        if leader_id is None:
            self.metadata.forget([at.topic])
            self.refresh([at.topic])
            leader_id = self.metadata.leader_of(at.topic, at.partition)
        if leader_id is None:
            raise LeaderNotAvailableError(f"nobody leads {at.topic}/{at.partition} now")
        return topic.topic_id, self.connection_to(leader_id)

    def topic(self, name: str) -> TopicMetadata:
        """Return what is known of a topic, after asking if it is not known.

        Raises:
            UnknownTopicError: There is no such topic.
            TidelogError: Nobody could be asked.
        """
        known = self.metadata.topic(name)
        if known is None:
            self.refresh([name])
            known = self.metadata.topic(name)
        if known is None:
            raise self.metadata.error(name) or UnknownTopicError(f"there is no topic {name!r}")
        return known

    def refresh(self, topics: Iterable[str]) -> None:
        """Ask where brokers and these topics are, once.

        Raises:
            TidelogError: Nobody could be asked.
        """
        reply, _ = self.any_connection().call(
            api.METADATA, MetadataRequest(sorted(topics)), timeout_s=self.request_timeout_s
        )
        self.metadata.apply(reply)

    # -- asking ---------------------------------------------------------------------------------

    def pause(self) -> None:
        """Let a moment pass before the same is asked again."""
        time.sleep(self._backoff.delay(1))

    def retry(self, attempt: Callable[[], Result]) -> Result:
        """Return what `attempt` returns; repeat it while that may help, for the request timeout.

        Raises:
            TidelogError: What went wrong last.
        """
        deadline = time.monotonic() + self.request_timeout_s
        failure_count = 0
        while True:
            try:
                return attempt()
            except (RetriableError, ConnectionLostError):
                failure_count += 1
                delay_s = self._backoff.delay(failure_count)
                if time.monotonic() + delay_s >= deadline:
                    raise
                time.sleep(delay_s)
                self._refresh_metadata()

    def call_any(self, api_: Api[RequestType, ReplyType], request: RequestType) -> ReplyType:
        """Ask any broker something that may be asked twice; errors as for `retry`."""
        return self.retry(lambda: self._ask(self.any_connection(), api_, request))

    def call_controller(self, api_: Api[RequestType, ReplyType], request: RequestType) -> ReplyType:
        """Ask the node that decides for the cluster, likewise."""

        def attempt() -> ReplyType:
            if self.metadata.controller_id is None:
                self.refresh(())
            node_id = self.metadata.controller_id
            if node_id is None:
                raise NotControllerError("no broker knows which one decides for the cluster now")
            return self._ask(self.connection_to(node_id), api_, request)

        return self.retry(attempt)

    def topic_offsets(
        self, topics: Sequence[str] | None, *, with_sizes: bool = False, from_journals: bool = False
    ) -> list[TopicOffsets]:
        """Return how far topics go, all for `None`, in one call; those not there are left out.

        With `from_journals`, `topics` are queues, and their journals are meant.

        Raises:
            TidelogError: Nobody could be asked.
        """
        request = ListOffsetsRequest(
            [],
            topics=None if topics is None else list(topics),
            with_sizes=with_sizes,
            from_journals=from_journals,
        )
        return self.call_any(api.LIST_OFFSETS, request).topics

    def list_offsets(
        self, queries: Mapping[TopicPartition, OffsetQuery]
    ) -> dict[TopicPartition, PartitionOffsets]:
        """Return answers about partitions, each from its leader; none has an error.

        All are partitions of topics, or all are of journals.

        Raises:
            TidelogError: A broker refused, or nobody could be asked.
        """
        return self.retry(lambda: self._list_offsets(queries))

    def _list_offsets(
        self, queries: Mapping[TopicPartition, OffsetQuery]
    ) -> dict[TopicPartition, PartitionOffsets]:
        by_connection: dict[BrokerConnection, list[TopicPartition]] = {}
        for at in queries:
            by_connection.setdefault(self.leader_of(at)[1], []).append(at)
        found: dict[TopicPartition, PartitionOffsets] = {}
        for connection, partitions in by_connection.items():
            request = ListOffsetsRequest(
                [queries[at] for at in partitions], from_journals=is_journal(partitions[0].topic)
            )
            offsets = self._ask(connection, api.LIST_OFFSETS, request).partitions
            if len(offsets) != len(partitions):
                raise WireFormatError(f"{len(offsets)} offsets for {len(partitions)} questions")
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
        """Ask again where everything is: leaders may have changed."""
        names = self.metadata.topic_names
        try:
            self.refresh(names)
        except (RetriableError, ConnectionLostError):
            for connection in list(self._connections.values()):
                if not connection.is_idle:
                    connection.close()  # Another broker may know; a new one is made if needed.

    def _connect(self, address: Address) -> BrokerConnection:
        connection = BrokerConnection(address, self.options)
        known = self._connections.get(connection.hello.node_id)
        if known is not None and not known.is_closed:
            connection.close()
            return known
        self._connections[connection.hello.node_id] = connection
        return connection
