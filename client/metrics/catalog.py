"""Catalog of the metrics of a client: `docs/metrics.md` is made of it.

Names follow Prometheus: base units, `_total` for counters. A client counts per API, topic and
queue, never per partition or connection.
"""

from typing import Final

from tidelog.wire.metrics.metric import Metric, MetricKind

_COUNTER: Final = MetricKind.COUNTER
_GAUGE: Final = MetricKind.GAUGE
_HISTOGRAM: Final = MetricKind.HISTOGRAM

OTHER: Final = "_other"
"""Value of a label for all objects without series of their own; no topic or queue has this name."""
OBJECTS_MAX: Final = 100
"""Maximum topics produced to, topics consumed and queues with series of their own, of each kind."""

_SECONDS_BOUNDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 120.0),
)
_HANDLER_BOUNDS: Final = (
    *(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
    *(60.0, 300.0, 1800.0),
)
_RECORDS_BOUNDS: Final = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)

# -- connections ------------------------------------------------------------------------------

CONNECTIONS: Final = Metric("tidelog_client_connections", _GAUGE, "Open connections to brokers")
CONNECTION_ATTEMPTS: Final = Metric(
    "tidelog_client_connection_attempts_total", _COUNTER, "Attempts to connect to a broker"
)
CONNECTIONS_OPENED: Final = Metric(
    "tidelog_client_connections_opened_total",
    _COUNTER,
    "Connections to brokers that were established",
)
CONNECTIONS_CLOSED: Final = Metric(
    "tidelog_client_connections_closed_total", _COUNTER, "Connections to brokers that ended"
)
RECONNECTS: Final = Metric(
    "tidelog_client_reconnects_total",
    _COUNTER,
    "Connections to brokers that the client was connected to before",
)
SENT_BYTES: Final = Metric(
    "tidelog_client_sent_bytes_total", _COUNTER, "Bytes of requests sent to brokers"
)
RECEIVED_BYTES: Final = Metric(
    "tidelog_client_received_bytes_total", _COUNTER, "Bytes received from brokers"
)
THROTTLED: Final = Metric(
    "tidelog_client_throttled_seconds_total",
    _COUNTER,
    "Time for which brokers read no further requests, by the quota that was used up",
    ("quota",),
)
REQUESTS: Final = Metric(
    "tidelog_client_requests_total",
    _COUNTER,
    "Ended requests by API and error code, OK without error; errors of single partitions or"
    " messages in a reply do not count",
    ("api", "code"),
)
REQUEST_DURATION: Final = Metric(
    "tidelog_client_request_duration_seconds",
    _HISTOGRAM,
    "Time from a request to its reply or failure, with the wait of long polls such as FETCH and"
    " RECEIVE at the broker",
    ("api",),
    bounds=_SECONDS_BOUNDS,
)

# -- producers --------------------------------------------------------------------------------

PRODUCED_RECORDS: Final = Metric(
    "tidelog_client_produced_records_total",
    _COUNTER,
    "Acknowledged records; sent ones with acks=0",
    ("topic",),
)
PRODUCED_BYTES: Final = Metric(
    "tidelog_client_produced_bytes_total",
    _COUNTER,
    "Bytes of acknowledged batches as they were sent, compressed",
    ("topic",),
)
PRODUCED_BATCHES: Final = Metric(
    "tidelog_client_produced_batches_total", _COUNTER, "Acknowledged batches", ("topic",)
)
PRODUCE_FAILED_RECORDS: Final = Metric(
    "tidelog_client_produce_failed_records_total",
    _COUNTER,
    "Records that failed for good, or whose outcome is unknown",
    ("topic",),
)
PRODUCE_RETRIES: Final = Metric(
    "tidelog_client_produce_retries_total", _COUNTER, "Batches that were sent again", ("topic",)
)
PRODUCE_ERRORS: Final = Metric(
    "tidelog_client_produce_errors_total",
    _COUNTER,
    "Failed attempts to send a batch by error code",
    ("code",),
)
BATCH_RECORDS: Final = Metric(
    "tidelog_client_batch_records",
    _HISTOGRAM,
    "Records of each acknowledged batch",
    bounds=_RECORDS_BOUNDS,
)
SEND_DURATION: Final = Metric(
    "tidelog_client_send_duration_seconds",
    _HISTOGRAM,
    "Time from the first record of a batch to the acknowledgement, with linger and retries",
    bounds=_SECONDS_BOUNDS,
)
PRODUCERS: Final = Metric("tidelog_client_producers", _GAUGE, "Open producers")
QUEUED_RECORDS: Final = Metric(
    "tidelog_client_queued_records",
    _GAUGE,
    "Records of open producers that are neither acknowledged nor failed",
)
BUFFER_BYTES: Final = Metric(
    "tidelog_client_buffer_bytes", _GAUGE, "Bytes in use of the buffers of open producers"
)
BUFFER_LIMIT: Final = Metric(
    "tidelog_client_buffer_limit_bytes", _GAUGE, "Sum of buffer_memory of open producers"
)
BUFFER_WAIT: Final = Metric(
    "tidelog_client_buffer_wait_seconds_total",
    _COUNTER,
    "Time for which calls waited for room in the buffer of a producer",
)
PRODUCE_IN_FLIGHT: Final = Metric(
    "tidelog_client_produce_requests_in_flight",
    _GAUGE,
    "Produce requests that wait for their reply",
)

# -- consumers --------------------------------------------------------------------------------

CONSUMED_RECORDS: Final = Metric(
    "tidelog_client_consumed_records_total",
    _COUNTER,
    "Records handed out to the application",
    ("topic",),
)
CONSUMED_BATCHES: Final = Metric(
    "tidelog_client_consumed_batches_total",
    _COUNTER,
    "Batches, or parts of them, handed out to the application",
    ("topic",),
)
FETCHED_BYTES: Final = Metric(
    "tidelog_client_fetched_bytes_total",
    _COUNTER,
    "Bytes of fetched batches, compressed; more than are handed out after a seek",
    ("topic",),
)
CONSUMER_LAG: Final = Metric(
    "tidelog_client_consumer_lag_records",
    _GAUGE,
    "Records between position and high watermark of the worst assigned partition, as of its"
    " last fetch",
    ("topic",),
)
ASSIGNED_PARTITIONS: Final = Metric(
    "tidelog_client_assigned_partitions",
    _GAUGE,
    "Partitions assigned to open consumers",
    ("topic",),
)
CONSUMERS: Final = Metric("tidelog_client_consumers", _GAUGE, "Open consumers")
PREFETCHED_BYTES: Final = Metric(
    "tidelog_client_prefetched_bytes", _GAUGE, "Bytes of fetched batches that wait in memory"
)
LAST_POLL_AGE: Final = Metric(
    "tidelog_client_last_poll_age_seconds",
    _GAUGE,
    "Time since the slowest open consumer got its last batch, 0 while it waits for records",
)
COMMITS: Final = Metric(
    "tidelog_client_commits_total",
    _COUNTER,
    "Commits of offsets by error code of the first failure, OK without one",
    ("code",),
)
REBALANCES: Final = Metric(
    "tidelog_client_rebalances_total",
    _COUNTER,
    "Changes of the assignment of members: assigned, revoked, lost",
    ("kind",),
)

# -- queues -----------------------------------------------------------------------------------

QUEUE_SENT: Final = Metric(
    "tidelog_client_queue_sent_total", _COUNTER, "Acknowledged messages", ("queue",)
)
QUEUE_RECEIVED: Final = Metric(
    "tidelog_client_queue_received_total", _COUNTER, "Received messages", ("queue",)
)
QUEUE_EMPTY_RECEIVES: Final = Metric(
    "tidelog_client_queue_empty_receives_total", _COUNTER, "Receives without a message", ("queue",)
)
QUEUE_DELETED: Final = Metric(
    "tidelog_client_queue_deleted_total", _COUNTER, "Deleted messages", ("queue",)
)
QUEUE_RELEASED: Final = Metric(
    "tidelog_client_queue_released_total",
    _COUNTER,
    "Messages released for another delivery, or returned before their handler started",
    ("queue",),
)
QUEUE_REJECTED: Final = Metric(
    "tidelog_client_queue_rejected_total",
    _COUNTER,
    "Messages that this client made dead letters",
    ("queue",),
)
QUEUE_EXTENSIONS: Final = Metric(
    "tidelog_client_queue_lease_extensions_total",
    _COUNTER,
    "Changes of the visibility timeout of messages, by workers, subscriptions and calls",
    ("queue",),
)
QUEUE_LOST_LEASES: Final = Metric(
    "tidelog_client_queue_lost_leases_total",
    _COUNTER,
    "Messages whose lease ended while a worker or a subscription held them",
    ("queue",),
)
QUEUE_THROTTLED: Final = Metric(
    "tidelog_client_queue_throttled_seconds_total",
    _COUNTER,
    "Time for which sends waited because of send_rate",
    ("queue",),
)
HANDLER_DURATION: Final = Metric(
    "tidelog_client_queue_handler_duration_seconds",
    _HISTOGRAM,
    "Duration of calls of the handlers of workers",
    ("queue",),
    bounds=_HANDLER_BOUNDS,
)
HANDLER_FAILURES: Final = Metric(
    "tidelog_client_queue_handler_failures_total",
    _COUNTER,
    "Calls of the handlers of workers that raised an exception",
    ("queue",),
)
HANDLERS_RUNNING: Final = Metric(
    "tidelog_client_queue_handlers_running", _GAUGE, "Handlers of workers that run now", ("queue",)
)

SECTIONS: Final[dict[str, tuple[Metric, ...]]] = {
    "Connections and requests": (
        *(CONNECTIONS, CONNECTION_ATTEMPTS, CONNECTIONS_OPENED, CONNECTIONS_CLOSED, RECONNECTS),
        *(SENT_BYTES, RECEIVED_BYTES, THROTTLED, REQUESTS, REQUEST_DURATION),
    ),
    "Producers": (
        *(PRODUCED_RECORDS, PRODUCED_BYTES, PRODUCED_BATCHES, PRODUCE_FAILED_RECORDS),
        *(PRODUCE_RETRIES, PRODUCE_ERRORS, BATCH_RECORDS, SEND_DURATION, PRODUCERS),
        *(QUEUED_RECORDS, BUFFER_BYTES, BUFFER_LIMIT, BUFFER_WAIT, PRODUCE_IN_FLIGHT),
    ),
    "Consumers": (
        *(CONSUMED_RECORDS, CONSUMED_BATCHES, FETCHED_BYTES, CONSUMER_LAG),
        *(ASSIGNED_PARTITIONS, CONSUMERS, PREFETCHED_BYTES, LAST_POLL_AGE, COMMITS, REBALANCES),
    ),
    "Queues": (
        *(QUEUE_SENT, QUEUE_RECEIVED, QUEUE_EMPTY_RECEIVES, QUEUE_DELETED, QUEUE_RELEASED),
        *(QUEUE_REJECTED, QUEUE_EXTENSIONS, QUEUE_LOST_LEASES, QUEUE_THROTTLED),
        *(HANDLER_DURATION, HANDLER_FAILURES, HANDLERS_RUNNING),
    ),
}
"""All metrics, in the order of `ClientStatistics.families`."""
