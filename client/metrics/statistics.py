"""Statistics of a client: an immutable snapshot of its counters (librdkafka: statistics).

Pure: no clock, no I/O.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar, final

from tidelog.client.metrics import catalog
from tidelog.client.metrics.counters import (
    ByName,
    ClientCounters,
    ConnectionCounters,
    ConsumerCounters,
    ConsumerGauges,
    ProducerCounters,
    QueueCounters,
)
from tidelog.wire.config.quota_rates import quota_of
from tidelog.wire.messages.queues import SettleAction
from tidelog.wire.metrics.metric import Family, HistogramValue, Metric, Value, family, single

Part = TypeVar("Part")
Counters = TypeVar("Counters")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStatistics:
    """Ended requests of one API."""

    count: int
    """Requests with a reply or a failure."""
    errors: Mapping[str, int]
    """Failed requests by error code, such as `NOT_LEADER`, `CONNECTION_LOST` or `WRONG_REPLY`."""
    duration: HistogramValue
    """Seconds from request to reply, with the wait of long polls at the broker."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionStatistics:
    """Connections to brokers, since the client was opened."""

    open: int
    """Open connections now."""
    attempts: int
    """Attempts to connect."""
    opened: int
    """Established connections."""
    closed: int
    """Ended connections."""
    reconnects: int
    """Established connections to brokers of an earlier connection."""
    sent_bytes: int
    """Bytes of requests."""
    received_bytes: int
    """Bytes of replies."""
    throttled_s: Mapping[str, float]
    """Seconds for which brokers read no further requests, by the quota that was used up."""
    principal: str | None = None
    """Principal of the last login, such as `user:alice`; `None` without one, for example if a
    certificate alone says it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ProducedTopicStatistics:
    """Records that producers of the client sent to one topic."""

    records: int
    """Acknowledged records; with `acks=0`, sent ones."""
    bytes: int
    """Bytes of acknowledged batches as they were sent."""
    batches: int
    """Acknowledged batches."""
    failed_records: int
    """Records that failed for good, or whose outcome is unknown."""
    retries: int
    """Batches that were sent again."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProducerStatistics:
    """All producers of the client, with the one of its queues."""

    topics: Mapping[str, ProducedTopicStatistics]
    """By topic; from the 101st topic on, under `_other`."""
    errors: Mapping[str, int]
    """Failed attempts to send a batch, by error code."""
    batch_records: HistogramValue
    """Records of each acknowledged batch."""
    send_duration: HistogramValue
    """Seconds from the first record of a batch to its acknowledgement."""
    buffer_wait_s: float
    """Seconds for which calls waited for room in a buffer."""
    open: int
    """Open producers now."""
    queued_records: int
    """Records now that are neither acknowledged nor failed."""
    buffer_bytes: int
    """Bytes of buffers in use now."""
    buffer_limit_bytes: int
    """Sum of `buffer_memory` of open producers."""
    requests_in_flight: int
    """Produce requests now without a reply."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedTopicStatistics:
    """Records of one topic that consumers of the client read."""

    records: int
    """Records handed out to the application, again after a seek back."""
    batches: int
    """Batches handed out, or parts of them."""
    fetched_bytes: int
    """Bytes of fetched batches."""
    assigned_partitions: int
    """Partitions assigned to open consumers now."""
    lag_records: int | None
    """Records from the position to the high watermark of the worst partition, as of its last fetch;
    `None` if it is not known."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConsumerStatistics:
    """All consumers of the client."""

    topics: Mapping[str, ConsumedTopicStatistics]
    """By topic; from the 101st topic on, under `_other`."""
    commits: Mapping[str, int]
    """Commits of offsets by error code, `OK` without error."""
    rebalances: Mapping[str, int]
    """Changes of assignments by kind: `assigned`, `revoked`, `lost`."""
    open: int
    """Open consumers now."""
    prefetched_bytes: int
    """Bytes of fetched batches in memory now."""
    last_poll_age_s: float
    """Seconds since the slowest open consumer got its last batch, 0 while it waits for one."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQueueStatistics:
    """Messages of one queue."""

    sent: int
    """Acknowledged messages."""
    received: int
    """Received messages."""
    empty_receives: int
    """Receives without a message."""
    deleted: int
    """Deleted messages."""
    released: int
    """Messages that were released or returned."""
    rejected: int
    """Messages that became dead letters by a reject."""
    lease_extensions: int
    """Changes of the visibility timeout of a message."""
    lost_leases: int
    """Messages whose lease ended while a worker or a subscription held them."""
    throttled_s: float
    """Seconds for which sends waited because of `send_rate`."""
    handler_duration: HistogramValue
    """Seconds of the calls of handlers of workers."""
    handler_failures: int
    """Calls of handlers that raised an exception."""
    handlers_running: int
    """Handlers that run now."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientStatistics:
    """State of a client at one moment. Counts begin with the client, and never go back."""

    client_id: str
    """The setting `client_id`."""
    connections: ConnectionStatistics
    """Connections to brokers."""
    requests: Mapping[str, RequestStatistics]
    """Requests by API, such as `PRODUCE` or `FETCH`."""
    producers: ClientProducerStatistics
    """Producers."""
    consumers: ClientConsumerStatistics
    """Consumers."""
    queues: Mapping[str, ClientQueueStatistics]
    """Queues by name; from the 101st queue on, under `_other`."""

    def families(self) -> list[Family]:
        """Return the same numbers as metric families, for exporters."""
        return [
            *self._connection_families(),
            *self._producer_families(),
            *self._consumer_families(),
            *self._queue_families(),
        ]

    def _connection_families(self) -> Iterable[Family]:
        connections = self.connections
        yield single(catalog.CONNECTIONS, connections.open)
        yield single(catalog.CONNECTION_ATTEMPTS, connections.attempts)
        yield single(catalog.CONNECTIONS_OPENED, connections.opened)
        yield single(catalog.CONNECTIONS_CLOSED, connections.closed)
        yield single(catalog.RECONNECTS, connections.reconnects)
        yield single(catalog.SENT_BYTES, connections.sent_bytes)
        yield single(catalog.RECEIVED_BYTES, connections.received_bytes)
        yield _by(catalog.THROTTLED, connections.throttled_s, float)
        by_code: list[tuple[tuple[str, ...], Value]] = []
        for api, each in self.requests.items():
            by_code.append(((api, "OK"), each.count - sum(each.errors.values())))
            by_code += [((api, code), count) for code, count in each.errors.items()]
        yield family(catalog.REQUESTS, by_code)
        yield _by(catalog.REQUEST_DURATION, self.requests, lambda each: each.duration)

    def _producer_families(self) -> Iterable[Family]:
        producers, topics = self.producers, self.producers.topics
        yield _by(catalog.PRODUCED_RECORDS, topics, lambda each: each.records)
        yield _by(catalog.PRODUCED_BYTES, topics, lambda each: each.bytes)
        yield _by(catalog.PRODUCED_BATCHES, topics, lambda each: each.batches)
        yield _by(catalog.PRODUCE_FAILED_RECORDS, topics, lambda each: each.failed_records)
        yield _by(catalog.PRODUCE_RETRIES, topics, lambda each: each.retries)
        yield _by(catalog.PRODUCE_ERRORS, producers.errors, _itself)
        yield single(catalog.BATCH_RECORDS, producers.batch_records)
        yield single(catalog.SEND_DURATION, producers.send_duration)
        yield single(catalog.PRODUCERS, producers.open)
        yield single(catalog.QUEUED_RECORDS, producers.queued_records)
        yield single(catalog.BUFFER_BYTES, producers.buffer_bytes)
        yield single(catalog.BUFFER_LIMIT, producers.buffer_limit_bytes)
        yield single(catalog.BUFFER_WAIT, producers.buffer_wait_s)
        yield single(catalog.PRODUCE_IN_FLIGHT, producers.requests_in_flight)

    def _consumer_families(self) -> Iterable[Family]:
        consumers, topics = self.consumers, self.consumers.topics
        lags = {name: each.lag_records for name, each in topics.items()}
        known_lags = {name: lag for name, lag in lags.items() if lag is not None}
        yield _by(catalog.CONSUMED_RECORDS, topics, lambda each: each.records)
        yield _by(catalog.CONSUMED_BATCHES, topics, lambda each: each.batches)
        yield _by(catalog.FETCHED_BYTES, topics, lambda each: each.fetched_bytes)
        yield _by(catalog.CONSUMER_LAG, known_lags, _itself)
        yield _by(catalog.ASSIGNED_PARTITIONS, topics, lambda each: each.assigned_partitions)
        yield single(catalog.CONSUMERS, consumers.open)
        yield single(catalog.PREFETCHED_BYTES, consumers.prefetched_bytes)
        yield single(catalog.LAST_POLL_AGE, consumers.last_poll_age_s)
        yield _by(catalog.COMMITS, consumers.commits, _itself)
        yield _by(catalog.REBALANCES, consumers.rebalances, _itself)

    def _queue_families(self) -> Iterable[Family]:
        queues = self.queues
        yield _by(catalog.QUEUE_SENT, queues, lambda each: each.sent)
        yield _by(catalog.QUEUE_RECEIVED, queues, lambda each: each.received)
        yield _by(catalog.QUEUE_EMPTY_RECEIVES, queues, lambda each: each.empty_receives)
        yield _by(catalog.QUEUE_DELETED, queues, lambda each: each.deleted)
        yield _by(catalog.QUEUE_RELEASED, queues, lambda each: each.released)
        yield _by(catalog.QUEUE_REJECTED, queues, lambda each: each.rejected)
        yield _by(catalog.QUEUE_EXTENSIONS, queues, lambda each: each.lease_extensions)
        yield _by(catalog.QUEUE_LOST_LEASES, queues, lambda each: each.lost_leases)
        yield _by(catalog.QUEUE_THROTTLED, queues, lambda each: each.throttled_s)
        yield _by(catalog.HANDLER_DURATION, queues, lambda each: each.handler_duration)
        yield _by(catalog.HANDLER_FAILURES, queues, lambda each: each.handler_failures)
        yield _by(catalog.HANDLERS_RUNNING, queues, lambda each: each.handlers_running)


def statistics_of(counters: ClientCounters, client_id: str) -> ClientStatistics:
    """Return a snapshot of the counters; any thread may call this."""
    connections = counters.connections
    return ClientStatistics(
        client_id=client_id,
        connections=_connections(connections),
        requests=_requests(connections),
        producers=_producers(counters.producers),
        consumers=_consumers(counters.consumers),
        queues=_frozen(counters.queues, _queue),
    )


def _connections(counters: ConnectionCounters) -> ConnectionStatistics:
    closed = counters.closed  # Before `opened`: so their difference is never below 0.
    opened = counters.opened
    return ConnectionStatistics(
        open=opened - closed,
        attempts=counters.attempts,
        opened=opened,
        closed=closed,
        reconnects=counters.reconnects,
        sent_bytes=counters.sent_bytes,
        received_bytes=counters.received_bytes,
        throttled_s=MappingProxyType(
            {
                quota_of(rate): seconds
                for rate, seconds in sorted(counters.throttled_s.copy().items())
            }
        ),
        principal=counters.principal or None,
    )


def _requests(counters: ConnectionCounters) -> Mapping[str, RequestStatistics]:
    found: dict[str, RequestStatistics] = {}
    for api_key, each in sorted(counters.requests.copy().items()):
        errors = each.errors.copy()  # Before `duration`: so there are never more errors.
        duration = each.duration.value()
        found[api_key.name] = RequestStatistics(
            count=duration.counts[-1], errors=MappingProxyType(errors), duration=duration
        )
    return MappingProxyType(found)


def _producers(counters: ProducerCounters) -> ClientProducerStatistics:
    gauges = [read() for read in counters.gauges.copy().values()]
    return ClientProducerStatistics(
        topics=_frozen(
            counters.topics,
            lambda each: ProducedTopicStatistics(
                records=each.records,
                bytes=each.bytes,
                batches=each.batches,
                failed_records=each.failed_records,
                retries=each.retries,
            ),
        ),
        errors=MappingProxyType(counters.errors.copy()),
        batch_records=counters.batch_records.value(),
        send_duration=counters.send_duration.value(),
        buffer_wait_s=counters.buffer_wait_s,
        open=len(gauges),
        queued_records=sum(each.queued_records for each in gauges),
        buffer_bytes=sum(each.buffer_bytes for each in gauges),
        buffer_limit_bytes=sum(each.buffer_limit_bytes for each in gauges),
        requests_in_flight=sum(each.requests_in_flight for each in gauges),
    )


def _consumers(counters: ConsumerCounters) -> ClientConsumerStatistics:
    gauges = [read() for read in counters.gauges.copy().values()]
    assigned, lags = _gauges_by_topic(counters, gauges)
    topics: dict[str, ConsumedTopicStatistics] = {}
    for name, each in counters.topics.known.copy().items():
        topics[name] = ConsumedTopicStatistics(
            records=each.records,
            batches=each.batches,
            fetched_bytes=each.fetched_bytes,
            assigned_partitions=assigned.get(name, 0),
            lag_records=lags.get(name),
        )
    return ClientConsumerStatistics(
        topics=MappingProxyType(topics),
        commits=MappingProxyType(counters.commits.copy()),
        rebalances=MappingProxyType(counters.rebalances.copy()),
        open=len(gauges),
        prefetched_bytes=sum(each.prefetched_bytes for each in gauges),
        last_poll_age_s=max((each.last_poll_age_s for each in gauges), default=0.0),
    )


def _gauges_by_topic(
    counters: ConsumerCounters, gauges: Iterable[ConsumerGauges]
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the number of partitions and the largest lag of each label."""
    assigned: dict[str, int] = {}
    lags: dict[str, int] = {}
    for each in gauges:
        for topic, count in each.assigned.items():
            label = counters.topics.label(topic)
            assigned[label] = assigned.get(label, 0) + count
        for topic, lag in each.lags.items():
            label = counters.topics.label(topic)
            lags[label] = max(lags.get(label, 0), lag)
    return assigned, lags


def _queue(counters: QueueCounters) -> ClientQueueStatistics:
    settled = counters.settled
    return ClientQueueStatistics(
        sent=counters.sent,
        received=counters.received,
        empty_receives=counters.empty_receives,
        deleted=settled[SettleAction.DELETE],
        released=settled[SettleAction.RELEASE] + settled[SettleAction.RETURN],
        rejected=settled[SettleAction.REJECT],
        lease_extensions=settled[SettleAction.EXTEND] + settled[SettleAction.CHANGE_VISIBILITY],
        lost_leases=counters.lost_leases,
        throttled_s=counters.throttled_s,
        handler_duration=counters.handler_duration.value(),
        handler_failures=counters.handler_failures,
        handlers_running=counters.handlers_running,
    )


def _frozen(counters: ByName[Counters], freeze: Callable[[Counters], Part]) -> Mapping[str, Part]:
    return MappingProxyType({name: freeze(each) for name, each in counters.known.copy().items()})


def _by(metric: Metric, parts: Mapping[str, Part], value: Callable[[Part], Value]) -> Family:
    return family(metric, [((name,), value(part)) for name, part in parts.items()])


def _itself(value: int) -> Value:
    return value
