"""Counters of a client: plain slots, touched once per batch, request or call.

Pure: no I/O; the clock is passed in. Another thread may read them at any time: it copies each
collection with one call of the interpreter, and a number may be one event older than another.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar, final

from tidelog.client.metrics import catalog
from tidelog.client.metrics.catalog import OBJECTS_MAX, OTHER
from tidelog.wire.errors import BrokerError, ConnectionLostError, WireFormatError
from tidelog.wire.messages.queues import SettleAction
from tidelog.wire.metrics.metric import Histogram
from tidelog.wire.protocol.api import ApiKey

Counters = TypeVar("Counters")


@final
class ByName(Generic[Counters]):
    """Counters of the first names; all further names share those of `_other`."""

    def __init__(self, make: Callable[[], Counters]) -> None:
        """Start without names."""
        self.known: dict[str, Counters] = {}
        self._make = make

    def of(self, name: str) -> Counters:
        """Return the counters of a name."""
        found = self.known.get(name)
        if found is not None:
            return found
        return self.known.setdefault(self.label(name), self._make())

    def label(self, name: str) -> str:
        """Return the label under which a name is counted."""
        is_one = name in self.known or len(self.known) < OBJECTS_MAX
        return name if is_one else OTHER


@final
class RequestCounters:
    """Ended requests of one API."""

    __slots__ = ("duration", "errors")

    def __init__(self) -> None:
        """Start at zero."""
        self.duration = Histogram(catalog.REQUEST_DURATION)
        self.errors: dict[str, int] = {}


@final
class ConnectionCounters:
    """Connections of one client, and their requests (`wire.transport.rpc.RequestMeter`)."""

    __slots__ = (
        "attempts",
        "closed",
        "now",
        "on_throttled",
        "opened",
        "principal",
        "received_bytes",
        "reconnects",
        "requests",
        "sent_bytes",
        "throttled_s",
        "throttled_until",
    )

    def __init__(self, now: Callable[[], float]) -> None:
        """Start at zero; `now` returns monotonic seconds."""
        self.now = now
        self.principal = ""
        """Principal of the last login, empty before the first one."""
        self.attempts = 0
        self.opened = 0
        self.closed = 0
        self.reconnects = 0
        self.sent_bytes = 0
        self.received_bytes = 0
        self.requests: dict[ApiKey, RequestCounters] = {}
        self.throttled_s: dict[int, float] = {}
        self.throttled_until = float("-inf")
        self.on_throttled: Callable[[], None] = lambda: None

    def throttled(self, rate: int, ms: int) -> None:
        """Count the time until a broker reads on; times at several brokers count once."""
        now = self.now()
        until = now + ms / 1000
        added = until - max(now, self.throttled_until)
        if added > 0:
            self.throttled_until = until
            self.throttled_s[rate] = self.throttled_s.get(rate, 0.0) + added
        self.on_throttled()

    def ended(self, api_key: ApiKey, seconds: float, outcome: object) -> None:
        """Count a request of so many seconds with its reply or error."""
        counters = self.requests.get(api_key)
        if counters is None:
            counters = self.requests[api_key] = RequestCounters()
        counters.duration.observe(seconds)
        if isinstance(outcome, Exception):
            count_error(counters.errors, outcome)


@final
class ProducedCounters:
    """Records for one topic."""

    __slots__ = ("batches", "bytes", "failed_records", "records", "retries")

    def __init__(self) -> None:
        """Start at zero."""
        self.records = 0
        self.bytes = 0
        self.batches = 0
        self.failed_records = 0
        self.retries = 0


class ProducerGauges(NamedTuple):
    """State of one open producer."""

    queued_records: int
    buffer_bytes: int
    buffer_limit_bytes: int
    requests_in_flight: int


@final
class ProducerCounters:
    """All producers of one client."""

    __slots__ = (
        "batch_records",
        "buffer_wait_s",
        "errors",
        "gauges",
        "send_duration",
        "topics",
    )

    def __init__(self) -> None:
        """Start at zero."""
        self.topics = ByName(ProducedCounters)
        self.batch_records = Histogram(catalog.BATCH_RECORDS)
        self.send_duration = Histogram(catalog.SEND_DURATION)
        self.errors: dict[str, int] = {}
        self.buffer_wait_s = 0.0
        self.gauges: dict[object, Callable[[], ProducerGauges]] = {}
        """The state of each open producer, by the producer."""

    def settled(self, topic: str, *, acknowledged: int, failed: int, byte_count: int) -> None:
        """Count the records of a batch, whose bytes are `byte_count`."""
        counters = self.topics.known.get(topic) or self.topics.of(topic)
        counters.failed_records += failed
        if acknowledged:
            counters.records += acknowledged
            counters.bytes += byte_count
            counters.batches += 1
            self.batch_records.observe(acknowledged)


@final
class ConsumedCounters:
    """Records of one topic."""

    __slots__ = ("batches", "fetched_bytes", "records")

    def __init__(self) -> None:
        """Start at zero."""
        self.records = 0
        self.batches = 0
        self.fetched_bytes = 0


class ConsumerGauges(NamedTuple):
    """State of one open consumer."""

    assigned: dict[str, int]
    """Number of its partitions by topic."""
    lags: dict[str, int]
    """Lag in records of the worst partition of each topic, as far as it is known."""
    prefetched_bytes: int
    last_poll_age_s: float


@final
class ConsumerCounters:
    """All consumers of one client."""

    __slots__ = ("commits", "gauges", "rebalances", "topics")

    def __init__(self) -> None:
        """Start at zero."""
        self.topics = ByName(ConsumedCounters)
        self.commits = {"OK": 0}
        self.rebalances = {"assigned": 0, "revoked": 0, "lost": 0}
        self.gauges: dict[object, Callable[[], ConsumerGauges]] = {}
        """The state of each open consumer, by the consumer."""

    def committed(self, failure: Exception | None) -> None:
        """Count a commit."""
        if failure is None:
            self.commits["OK"] += 1
        else:
            count_error(self.commits, failure)


@final
class QueueCounters:
    """Messages of one queue."""

    __slots__ = (
        "empty_receives",
        "handler_duration",
        "handler_failures",
        "handlers_running",
        "lost_leases",
        "received",
        "sent",
        "settled",
        "throttled_s",
    )

    def __init__(self) -> None:
        """Start at zero."""
        self.sent = 0
        self.received = 0
        self.empty_receives = 0
        self.settled = dict.fromkeys(SettleAction, 0)
        self.lost_leases = 0
        self.throttled_s = 0.0
        self.handler_duration = Histogram(catalog.HANDLER_DURATION)
        self.handler_failures = 0
        self.handlers_running = 0


@final
class ClientCounters:
    """All counters of one client."""

    __slots__ = ("connections", "consumers", "now", "producers", "queues")

    def __init__(self, now: Callable[[], float]) -> None:
        """Start at zero; any thread may call `now`, which returns monotonic seconds."""
        self.now = now
        self.connections = ConnectionCounters(now)
        self.producers = ProducerCounters()
        self.consumers = ConsumerCounters()
        self.queues = ByName(QueueCounters)


def count_error(counts: dict[str, int], error: Exception) -> None:
    """Count an error by its code; errors without a code are the client's own."""
    if isinstance(error, BrokerError):
        code = error.code.name
    elif isinstance(error, WireFormatError):
        code = "WRONG_REPLY"
    elif isinstance(error, ConnectionLostError):
        code = "CONNECTION_LOST"
    else:
        code = "OTHER"
    counts[code] = counts.get(code, 0) + 1
