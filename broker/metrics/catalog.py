"""Catalog of the metrics of a broker: `docs/metrics.md` is made of it, and dashboards refer to it.

Names follow Prometheus: base units, `_total` for counters. No label names the broker, since
Prometheus adds `instance`. Each object is counted where its leader is, so a sum over all brokers
counts everything once. Only the active controller reports groups, transactions and thresholds.
"""

from typing import Final

from tidelog.wire.metrics.metric import Metric, MetricKind

_COUNTER: Final = MetricKind.COUNTER
_GAUGE: Final = MetricKind.GAUGE
_HISTOGRAM: Final = MetricKind.HISTOGRAM

OTHER: Final = "_other"
"""Value of a label for all objects without series of their own; no topic or queue has this name."""

_REQUEST_BOUNDS: Final = (
    *(0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)
_DISK_BOUNDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)
_LAG_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

# -- the process ------------------------------------------------------------------------------

BUILD_INFO: Final = Metric(
    "tidelog_build_info",
    _GAUGE,
    "1, with the version and the node id of this broker",
    ("version", "node_id", "cluster_id"),
)
PROCESS_CPU: Final = Metric(
    "process_cpu_seconds_total", _COUNTER, "CPU time of this process, in user and system mode"
)
PROCESS_MEMORY: Final = Metric(
    "process_resident_memory_bytes", _GAUGE, "Resident memory of this process"
)
PROCESS_FILES: Final = Metric("process_open_fds", _GAUGE, "Open file descriptors of this process")
PROCESS_MAX_FILES: Final = Metric(
    "process_max_fds", _GAUGE, "Maximum number of open file descriptors of this process"
)
PROCESS_START: Final = Metric(
    "process_start_time_seconds", _GAUGE, "Start of this process, in Unix seconds"
)
CERTIFICATE_EXPIRY: Final = Metric(
    "tidelog_certificate_expiry_timestamp_seconds",
    _GAUGE,
    "End of the certificate of this broker, in Unix seconds; only with TLS",
)
LOCKED_TOPICS: Final = Metric(
    "tidelog_locked_topics",
    _GAUGE,
    "Topics with a replica here whose data keys this broker cannot use, as it lacks a master key",
)
LOCKED_PARTITIONS: Final = Metric(
    "tidelog_locked_partitions", _GAUGE, "Replicas of these topics at this broker"
)
LOOP_LAG: Final = Metric(
    "tidelog_loop_lag_seconds",
    _HISTOGRAM,
    "Delay of a timer that is due ten times a second; its p99 says how busy the broker is",
    bounds=_LAG_BOUNDS,
)
EVENTS: Final = Metric(
    "tidelog_events_total",
    _COUNTER,
    "Events of the log by name and severity; docs/operations.md has a heading for each",
    ("event", "severity"),
)

ACCESS_DENIALS: Final = Metric(
    "tidelog_access_denials_total",
    _COUNTER,
    "Denied requests, partitions and queues, by the kind of resource and the action; with"
    " `authorization = report` those that would be denied",
    ("kind", "action"),
)

# -- requests ---------------------------------------------------------------------------------

REQUESTS: Final = Metric(
    "tidelog_requests_total",
    _COUNTER,
    "Answered requests by API and error code, OK without error",
    ("api", "code"),
)
REQUEST_DURATION: Final = Metric(
    "tidelog_request_duration_seconds",
    _HISTOGRAM,
    "Time to the answer of a request, or until a long poll begins to wait",
    ("api",),
    bounds=_REQUEST_BOUNDS,
)
THROTTLED: Final = Metric(
    "tidelog_throttled_seconds_total",
    _COUNTER,
    "Time for which the broker read no further requests of a principal, by the quota that was used"
    " up; from the 101st principal on, under _other",
    ("principal", "quota"),
)
COMMIT_WAIT: Final = Metric(
    "tidelog_commit_wait_seconds",
    _HISTOGRAM,
    "Time from the append of produced records or sent messages to their acknowledgement",
    bounds=_REQUEST_BOUNDS,
)
SYNC_DURATION: Final = Metric(
    "tidelog_sync_duration_seconds",
    _HISTOGRAM,
    "Duration of a sync of a log to the disk",
    bounds=_DISK_BOUNDS,
)
CONNECTIONS: Final = Metric(
    "tidelog_connections", _GAUGE, "Open connections of clients and of nodes", ("peer",)
)
WAITING_REQUESTS: Final = Metric(
    "tidelog_waiting_requests", _GAUGE, "Requests that wait for data, messages or commits"
)
REQUEST_MEMORY: Final = Metric(
    "tidelog_request_memory_bytes", _GAUGE, "Memory lent to requests that are being received"
)
REQUEST_MEMORY_LIMIT: Final = Metric(
    "tidelog_request_memory_limit_bytes", _GAUGE, "The setting queued_max_request_bytes"
)

AUDIT_RECORDS: Final = Metric(
    "tidelog_audit_records_total",
    _COUNTER,
    "Audit records of this broker by outcome: written or lost; docs/audit.md says when they are",
    ("outcome",),
)
AUDIT_BUFFER: Final = Metric(
    "tidelog_audit_buffer_bytes", _GAUGE, "Audit records that are not written yet, of 4 MiB"
)

# -- cluster and replication ------------------------------------------------------------------

CONTROLLER: Final = Metric(
    "tidelog_controller", _GAUGE, "1 if this broker is the active controller, else 0"
)
METADATA_AGE: Final = Metric(
    "tidelog_metadata_age_seconds", _GAUGE, "Time since the metadata of this broker were current"
)
BROKERS: Final = Metric(
    "tidelog_brokers",
    _GAUGE,
    "Registered brokers by state, from the active controller",
    ("state",),
)
CLUSTER_PARTITIONS: Final = Metric(
    "tidelog_cluster_partitions",
    _GAUGE,
    "Partitions of the cluster that need attention by state, from the active controller",
    ("state",),
)
CLUSTER_EVENTS: Final = Metric(
    "tidelog_cluster_events",
    _GAUGE,
    "Losses and unclean elections that are not acknowledged by kind, from the active controller",
    ("kind",),
)
PARTITIONS: Final = Metric(
    "tidelog_partitions", _GAUGE, "Replicas of this broker by state", ("state",)
)
ISR_CHANGES: Final = Metric(
    "tidelog_isr_changes_total",
    _COUNTER,
    "Replicas that left or joined an ISR by kind, from the controller that decided it",
    ("kind",),
)
ELECTIONS: Final = Metric(
    "tidelog_leader_elections_total",
    _COUNTER,
    "Elected leaders by kind, from the controller that elected them",
    ("kind",),
)
REPLICA_LAG_RECORDS: Final = Metric(
    "tidelog_replica_lag_records",
    _GAUGE,
    "Records that the slowest follower of a topic has not fetched",
    ("topic",),
)
HOT_PARTITIONS: Final = Metric(
    "tidelog_hot_partitions",
    _GAUGE,
    "Hot partitions of a topic that this broker leads; tidelog topic hot shows their keys",
    ("topic",),
)

# -- disks ------------------------------------------------------------------------------------

DISK_FREE: Final = Metric("tidelog_disk_free_bytes", _GAUGE, "Free bytes of the data directory")
DISK_SIZE: Final = Metric(
    "tidelog_disk_size_bytes", _GAUGE, "Size of the file system of the data directory"
)
DISK_RESERVE: Final = Metric(
    "tidelog_disk_reserve_bytes", _GAUGE, "The setting min_free_disk_bytes in force"
)
DISK_FULL_LOGS: Final = Metric(
    "tidelog_disk_full_logs", _GAUGE, "Logs that are read-only because the disk has no room"
)
LOG_BYTES: Final = Metric(
    "tidelog_log_bytes", _GAUGE, "Bytes of the replicas of a topic on this broker", ("topic",)
)
DAMAGE_FOUND: Final = Metric(
    "tidelog_damage_found_total", _COUNTER, "Damage in records on disk that readers or scrubs found"
)
DAMAGE_REPAIRED: Final = Metric(
    "tidelog_damage_repaired_total", _COUNTER, "Replicas repaired from other replicas"
)

# -- topics -----------------------------------------------------------------------------------

TOPIC_RECEIVED_BYTES: Final = Metric(
    "tidelog_topic_received_bytes_total", _COUNTER, "Bytes of produced batches", ("topic",)
)
TOPIC_RECEIVED_RECORDS: Final = Metric(
    "tidelog_topic_received_records_total", _COUNTER, "Produced records", ("topic",)
)
TOPIC_RECEIVED_BATCHES: Final = Metric(
    "tidelog_topic_received_batches_total", _COUNTER, "Produced batches", ("topic",)
)
TOPIC_SENT_BYTES: Final = Metric(
    "tidelog_topic_sent_bytes_total",
    _COUNTER,
    "Bytes sent to consumers, not to followers",
    ("topic",),
)
TOPIC_REFUSED_BATCHES: Final = Metric(
    "tidelog_topic_refused_batches_total",
    _COUNTER,
    "Produced batches that the leader refused",
    ("topic",),
)

# -- groups -----------------------------------------------------------------------------------

GROUP_LAG_RECORDS: Final = Metric(
    "tidelog_group_lag_records",
    _GAUGE,
    "Records that a group has not committed",
    ("group", "topic"),
)
GROUP_LAG_SECONDS: Final = Metric(
    "tidelog_group_lag_seconds",
    _GAUGE,
    "Age of the oldest record that a group has not committed, of its worst partition",
    ("group", "topic"),
)
GROUP_LOST_RECORDS: Final = Metric(
    "tidelog_group_lost_records",
    _GAUGE,
    "Records that retention deleted before the group has committed them",
    ("group", "topic"),
)
GROUP_MEMBERS: Final = Metric("tidelog_group_members", _GAUGE, "Members of a group", ("group",))
GROUP_EPOCH: Final = Metric(
    "tidelog_group_epoch", _GAUGE, "Epoch of a group: it grows with each rebalance", ("group",)
)
GROUP_ALERT_LAG: Final = Metric(
    "tidelog_group_alert_lag_seconds",
    _GAUGE,
    "The setting alert_lag_ms of a group",
    ("group", "owner"),
)
GROUP_ALERT_RECORDS: Final = Metric(
    "tidelog_group_alert_lag_records",
    _GAUGE,
    "The setting alert_lag_records of a group",
    ("group", "owner"),
)

# -- queues -----------------------------------------------------------------------------------

QUEUE_READY: Final = Metric(
    "tidelog_queue_ready",
    _GAUGE,
    "Messages that can be received, and unread ones that have a delay of their own",
    ("queue",),
)
QUEUE_LEASED: Final = Metric(
    "tidelog_queue_leased", _GAUGE, "Messages in flight: received and not settled", ("queue",)
)
QUEUE_DELAYED: Final = Metric(
    "tidelog_queue_delayed", _GAUGE, "Messages that become visible later", ("queue",)
)
QUEUE_DEAD: Final = Metric(
    "tidelog_queue_dead",
    _GAUGE,
    "Dead letters that are not in the dead-letter queue yet, or that no queue accepts",
    ("queue",),
)
QUEUE_AGE: Final = Metric(
    "tidelog_queue_oldest_message_age_seconds", _GAUGE, "Age of the oldest message", ("queue",)
)
QUEUE_UNKNOWN: Final = Metric(
    "tidelog_queue_partitions_unknown",
    _GAUGE,
    "Queue partitions that this broker leads and has not counted since it leads them",
)
QUEUE_SENT: Final = Metric(
    "tidelog_queue_sent_total",
    _COUNTER,
    "Messages that arrived in the topic of the queue; each chunk of a large message counts",
    ("queue",),
)
QUEUE_RECEIVED: Final = Metric(
    "tidelog_queue_received_total", _COUNTER, "Deliveries of messages", ("queue",)
)
QUEUE_REDELIVERED: Final = Metric(
    "tidelog_queue_redelivered_total",
    _COUNTER,
    "Deliveries that were not the first of a message",
    ("queue",),
)
QUEUE_DELETED: Final = Metric(
    "tidelog_queue_deleted_total", _COUNTER, "Messages that consumers deleted", ("queue",)
)
QUEUE_RELEASED: Final = Metric(
    "tidelog_queue_released_total",
    _COUNTER,
    "Messages that consumers released or returned before their lease ended",
    ("queue",),
)
QUEUE_EXPIRED_LEASES: Final = Metric(
    "tidelog_queue_expired_leases_total",
    _COUNTER,
    "Leases of messages that ended without a settlement",
    ("queue",),
)
QUEUE_EXPIRED: Final = Metric(
    "tidelog_queue_expired_messages_total",
    _COUNTER,
    "Messages that were deleted because of their age",
    ("queue",),
)
QUEUE_DEAD_LETTERS: Final = Metric(
    "tidelog_queue_dead_letters_total",
    _COUNTER,
    "Messages that became dead letters of this queue",
    ("queue",),
)
QUEUE_DUPLICATES: Final = Metric(
    "tidelog_queue_duplicates_dropped_total",
    _COUNTER,
    "Sent messages that were duplicates of earlier ones",
    ("queue",),
)
QUEUE_EMPTY_RECEIVES: Final = Metric(
    "tidelog_queue_empty_receives_total", _COUNTER, "Receives without a message", ("queue",)
)
QUEUE_ALERT_AGE: Final = Metric(
    "tidelog_queue_alert_age_seconds",
    _GAUGE,
    "The setting alert_age_ms of a queue",
    ("queue", "owner"),
)
QUEUE_ALERT_DEPTH: Final = Metric(
    "tidelog_queue_alert_depth", _GAUGE, "The setting alert_depth of a queue", ("queue", "owner")
)
QUEUE_ALERT_DEAD_LETTERS: Final = Metric(
    "tidelog_queue_alert_dead_letters",
    _GAUGE,
    "The setting alert_dead_letters of a queue, with its dead-letter queue",
    ("queue", "owner", "dead_letter_queue"),
)

# -- transactions -----------------------------------------------------------------------------

TRANSACTIONS: Final = Metric(
    "tidelog_transactions",
    _GAUGE,
    "Names of staged writes by state, from the active controller",
    ("state",),
)
OLDEST_TRANSACTION: Final = Metric(
    "tidelog_oldest_open_transaction_seconds",
    _GAUGE,
    "Age of the oldest open transaction, from the active controller",
)
STAGED_BYTES: Final = Metric("tidelog_staged_bytes", _GAUGE, "Bytes of staging logs on this broker")

# -- partitions of one topic, at /metrics/partitions?topic=NAME -----------------------------------

_PARTITION: Final = ("topic", "partition")
PARTITION_LEADER: Final = Metric(
    "tidelog_partition_leader", _GAUGE, "1 if this broker leads the partition, else 0", _PARTITION
)
PARTITION_START_OFFSET: Final = Metric(
    "tidelog_partition_log_start_offset", _GAUGE, "First offset of the log", _PARTITION
)
PARTITION_HIGH_WATERMARK: Final = Metric(
    "tidelog_partition_high_watermark", _GAUGE, "Exclusive end of the readable records", _PARTITION
)
PARTITION_END_OFFSET: Final = Metric(
    "tidelog_partition_log_end_offset", _GAUGE, "Exclusive end of the log", _PARTITION
)
PARTITION_BYTES: Final = Metric(
    "tidelog_partition_log_bytes", _GAUGE, "Bytes of the replica on this broker", _PARTITION
)
PARTITION_ISR: Final = Metric(
    "tidelog_partition_in_sync_replicas", _GAUGE, "Size of the ISR, from the leader", _PARTITION
)
PARTITION_LAG: Final = Metric(
    "tidelog_partition_replica_lag_records",
    _GAUGE,
    "Records that the slowest follower has not fetched, from the leader",
    _PARTITION,
)
PARTITION_RECEIVED_BYTES: Final = Metric(
    "tidelog_partition_received_bytes_total", _COUNTER, "Bytes of produced batches", _PARTITION
)
PARTITION_RECEIVED_RECORDS: Final = Metric(
    "tidelog_partition_received_records_total", _COUNTER, "Produced records", _PARTITION
)
PARTITION_SENT_BYTES: Final = Metric(
    "tidelog_partition_sent_bytes_total", _COUNTER, "Bytes sent to consumers", _PARTITION
)

SECTIONS: Final[dict[str, tuple[Metric, ...]]] = {
    "The process": (
        *(BUILD_INFO, PROCESS_CPU, PROCESS_MEMORY, PROCESS_FILES, PROCESS_MAX_FILES),
        *(PROCESS_START, CERTIFICATE_EXPIRY, LOCKED_TOPICS, LOCKED_PARTITIONS),
        *(LOOP_LAG, EVENTS, ACCESS_DENIALS),
    ),
    "Requests": (
        *(REQUESTS, REQUEST_DURATION, COMMIT_WAIT, SYNC_DURATION, CONNECTIONS),
        *(WAITING_REQUESTS, THROTTLED, REQUEST_MEMORY, REQUEST_MEMORY_LIMIT),
        *(AUDIT_RECORDS, AUDIT_BUFFER),
    ),
    "Cluster and replication": (
        *(CONTROLLER, METADATA_AGE, BROKERS, CLUSTER_PARTITIONS, CLUSTER_EVENTS, PARTITIONS),
        *(ISR_CHANGES, ELECTIONS, REPLICA_LAG_RECORDS, HOT_PARTITIONS),
    ),
    "Disks": (
        *(DISK_FREE, DISK_SIZE, DISK_RESERVE, DISK_FULL_LOGS, LOG_BYTES),
        *(DAMAGE_FOUND, DAMAGE_REPAIRED),
    ),
    "Topics": (
        *(TOPIC_RECEIVED_BYTES, TOPIC_RECEIVED_RECORDS, TOPIC_RECEIVED_BATCHES),
        *(TOPIC_SENT_BYTES, TOPIC_REFUSED_BATCHES),
    ),
    "Groups": (
        *(GROUP_LAG_RECORDS, GROUP_LAG_SECONDS, GROUP_LOST_RECORDS, GROUP_MEMBERS),
        *(GROUP_EPOCH, GROUP_ALERT_LAG, GROUP_ALERT_RECORDS),
    ),
    "Queues": (
        *(QUEUE_READY, QUEUE_LEASED, QUEUE_DELAYED, QUEUE_DEAD, QUEUE_AGE, QUEUE_UNKNOWN),
        *(QUEUE_SENT, QUEUE_RECEIVED, QUEUE_REDELIVERED, QUEUE_DELETED, QUEUE_RELEASED),
        *(QUEUE_EXPIRED_LEASES, QUEUE_EXPIRED, QUEUE_DEAD_LETTERS, QUEUE_DUPLICATES),
        *(QUEUE_EMPTY_RECEIVES, QUEUE_ALERT_AGE, QUEUE_ALERT_DEPTH, QUEUE_ALERT_DEAD_LETTERS),
    ),
    "Staged writes": (TRANSACTIONS, OLDEST_TRANSACTION, STAGED_BYTES),
    "Partitions of one topic": (
        *(PARTITION_LEADER, PARTITION_START_OFFSET, PARTITION_HIGH_WATERMARK),
        *(PARTITION_END_OFFSET, PARTITION_BYTES, PARTITION_ISR, PARTITION_LAG),
        *(PARTITION_RECEIVED_BYTES, PARTITION_RECEIVED_RECORDS, PARTITION_SENT_BYTES),
    ),
}
"""All metrics, by section of `docs/metrics.md`."""
