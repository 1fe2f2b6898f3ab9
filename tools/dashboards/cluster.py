"""The dashboard of a cluster, for operators."""

from typing import Final

from tools.dashboards.grafana import Board, Number, Panel, Row

_HEALTH: Final = Row(
    "Health",
    (
        Number(
            "Active controllers",
            "Without an active controller, the cluster elects no leaders.",
            "short",
            {"controllers": "sum(tidelog_controller)"},
            red_below=1,
        ),
        Number(
            "Brokers down",
            "Registered brokers that the controller has fenced, since they send no heartbeats.",
            "short",
            {"fenced": 'max(tidelog_brokers{state="fenced"})'},
        ),
        Number(
            "Leaderless partitions",
            "Partitions that can be neither written nor read.",
            "short",
            {"partitions": 'max(tidelog_cluster_partitions{state="leaderless"})'},
        ),
        Number(
            "Under min ISR",
            "Partitions that reject records of producers with acks=all.",
            "short",
            {"partitions": 'sum(tidelog_partitions{state="under_min_isr"})'},
        ),
        Number(
            "Under-replicated",
            "Partitions with replicas that are not in sync.",
            "short",
            {"partitions": 'sum(tidelog_partitions{state="under_replicated"})'},
        ),
        Number(
            "Damaged replicas",
            "Replicas with damage on disk that are not repaired yet.",
            "short",
            {"replicas": 'sum(tidelog_partitions{state="damaged"})'},
        ),
    ),
)

_REQUESTS: Final = Row(
    "Requests",
    (
        Panel(
            "Requests",
            "Answered requests by API.",
            "reqps",
            {"{{api}}": "sum by (api) (rate(tidelog_requests_total[$__rate_interval])) > 0"},
            is_stacked=True,
        ),
        Panel(
            "Errors",
            "Answers with an error, by API and error code. Some are normal, such as those after a"
            " leader has moved.",
            "reqps",
            {
                "{{api}} {{code}}": "sum by (api, code)"
                ' (rate(tidelog_requests_total{code!="OK"}[$__rate_interval])) > 0'
            },
        ),
        Panel(
            "Duration of requests, p99",
            "Time to the answer, by API; long polls count until they begin to wait.",
            "s",
            {
                "{{api}}": "histogram_quantile(0.99, sum by (api, le)"
                " (rate(tidelog_request_duration_seconds_bucket[$__rate_interval])))"
            },
        ),
        Panel(
            "Wait for acknowledgement",
            "Time from the append of records to their commit by the in-sync replicas.",
            "s",
            {
                legend: f"histogram_quantile({quantile}, sum by (le)"
                " (rate(tidelog_commit_wait_seconds_bucket[$__rate_interval])))"
                for legend, quantile in (("p50", 0.5), ("p99", 0.99))
            },
        ),
        Panel(
            "Sync to the disk, p99",
            "Duration of a sync of a log, by broker: a slow disk is visible here first.",
            "s",
            {
                "{{instance}}": "histogram_quantile(0.99, sum by (instance, le)"
                " (rate(tidelog_sync_duration_seconds_bucket[$__rate_interval])))"
            },
        ),
        Panel(
            "Waiting requests",
            "Requests that wait for data, messages or commits, by broker.",
            "short",
            {"{{instance}}": "sum by (instance) (tidelog_waiting_requests)"},
        ),
    ),
)

_BROKERS: Final = Row(
    "Brokers",
    (
        Panel(
            "Lag of the event loop, p99",
            "Delay of timers by broker. Every request waits that long in addition.",
            "s",
            {
                "{{instance}}": "histogram_quantile(0.99, sum by (instance, le)"
                " (rate(tidelog_loop_lag_seconds_bucket[$__rate_interval])))"
            },
        ),
        Panel(
            "CPU",
            "CPU of the process by broker; one event loop uses at most one core.",
            "percentunit",
            {
                "{{instance}}": "sum by (instance)"
                " (rate(process_cpu_seconds_total[$__rate_interval]))"
            },
        ),
        Panel(
            "Memory",
            "Resident memory of the process by broker.",
            "bytes",
            {"{{instance}}": "sum by (instance) (process_resident_memory_bytes)"},
        ),
        Panel(
            "Memory of requests",
            "Memory of requests that are being received, in relation to queued_max_request_bytes.",
            "percentunit",
            {
                "{{instance}}": "sum by (instance)"
                " (tidelog_request_memory_bytes / tidelog_request_memory_limit_bytes)"
            },
        ),
        Panel(
            "Connections",
            "Open connections of clients and of other brokers.",
            "short",
            {"{{instance}} {{peer}}": "sum by (instance, peer) (tidelog_connections)"},
        ),
        Panel(
            "Open files",
            "Open file descriptors in relation to their limit, by broker.",
            "percentunit",
            {"{{instance}}": "sum by (instance) (process_open_fds / process_max_fds)"},
        ),
        Panel(
            "Days until certificates end",
            "Days until the certificate of TLS ends, by broker; negative after its end.",
            "none",
            {
                "{{instance}}": "(min by (instance)"
                " (tidelog_certificate_expiry_timestamp_seconds) - time()) / 86400"
            },
        ),
        Panel(
            "Locked topics",
            "Topics and replicas whose data keys a broker cannot use, as it lacks a master key.",
            "short",
            {
                "topics {{instance}}": "sum by (instance) (tidelog_locked_topics)",
                "replicas {{instance}}": "sum by (instance) (tidelog_locked_partitions)",
            },
        ),
        Panel(
            "Warnings and errors",
            "Events of the log by name, for each 5 minutes; docs/operations.md describes each.",
            "short",
            {
                "{{severity}} {{event}}": "sum by (event, severity)"
                ' (increase(tidelog_events_total{severity=~"warning|error"}[5m])) > 0'
            },
        ),
        Panel(
            "Audit records",
            "Audit records that brokers have written or lost, a second.",
            "ops",
            {
                "{{outcome}}": "sum by (outcome)"
                " (rate(tidelog_audit_records_total[$__rate_interval]))"
            },
        ),
        Panel(
            "Audit records that wait",
            "Audit records that are not written yet, by broker; beyond 4 MiB they are lost.",
            "bytes",
            {"{{instance}}": "sum by (instance) (tidelog_audit_buffer_bytes)"},
        ),
        Panel(
            "Denials of access",
            "Denials by kind and action, for each 5 minutes; docs/access.md explains rules.",
            "short",
            {
                "{{action}} {{kind}}": "sum by (kind, action)"
                " (increase(tidelog_access_denials_total[5m]))"
            },
        ),
        Panel(
            "Throttled principals",
            "Share of the time for which brokers read no requests of a principal, by quota.",
            "percentunit",
            {
                "{{principal}} {{quota}}": "sum by (principal, quota)"
                " (rate(tidelog_throttled_seconds_total[$__rate_interval]))"
            },
        ),
        Panel(
            "Age of metadata",
            "Time since the metadata of a broker were current.",
            "s",
            {"{{instance}}": "max by (instance) (tidelog_metadata_age_seconds)"},
        ),
        Panel(
            "Time since start",
            "A fall to 0 is a restart.",
            "s",
            {"{{instance}}": "time() - max by (instance) (process_start_time_seconds)"},
        ),
    ),
)

_REPLICATION: Final = Row(
    "Replication",
    (
        Panel(
            "Leaders by broker",
            "Partitions that each broker leads; planned elections balance them.",
            "short",
            {"{{instance}}": 'sum by (instance) (tidelog_partitions{state="leader"})'},
            is_stacked=True,
        ),
        Panel(
            "Replicas that need attention",
            "Replicas by broker and state, without healthy leaders and followers.",
            "short",
            {
                "{{instance}} {{state}}": "sum by (instance, state)"
                ' (tidelog_partitions{state!~"leader|follower"}) > 0'
            },
        ),
        Panel(
            "Partitions that need attention",
            "Partitions of the cluster by state, from the active controller.",
            "short",
            {"{{state}}": "max by (state) (tidelog_cluster_partitions)"},
        ),
        Panel(
            "Events that are not acknowledged",
            "Losses of records and unclean elections; `tidelog cluster events` lists them.",
            "short",
            {"{{kind}}": "max by (kind) (tidelog_cluster_events)"},
        ),
        Panel(
            "Changes of the ISR",
            "A shrink without a stopped broker says that a follower is too slow.",
            "short",
            {"{{kind}}": "sum by (kind) (increase(tidelog_isr_changes_total[5m]))"},
        ),
        Panel(
            "Elections",
            "Elected leaders by kind. An unclean election may lose acknowledged records.",
            "short",
            {"{{kind}}": "sum by (kind) (increase(tidelog_leader_elections_total[5m]))"},
        ),
        Panel(
            "Lag of followers",
            "Records that the slowest follower has not fetched, of the ten worst topics.",
            "short",
            {"{{topic}}": "topk(10, max by (topic) (tidelog_replica_lag_records))"},
        ),
    ),
)

_DISKS: Final = Row(
    "Disks",
    (
        Panel(
            "Free space",
            "Free part of the file system of the data directory. A full disk is read-only.",
            "percentunit",
            {
                "{{instance}}": "sum by (instance)"
                " (tidelog_disk_free_bytes / tidelog_disk_size_bytes)"
            },
        ),
        Panel(
            "Free bytes above the reserve",
            "Free bytes above min_free_disk_bytes: the room until the broker is read-only.",
            "bytes",
            {
                "{{instance}}": "sum by (instance)"
                " (tidelog_disk_free_bytes - tidelog_disk_reserve_bytes)"
            },
        ),
        Panel(
            "Read-only logs",
            "Logs that accept no records because the disk has no room.",
            "short",
            {"{{instance}}": "sum by (instance) (tidelog_disk_full_logs)"},
        ),
        Panel(
            "Largest topics",
            "Bytes of all replicas of the ten largest topics.",
            "bytes",
            {"{{topic}}": "topk(10, sum by (topic) (tidelog_log_bytes))"},
        ),
        Panel(
            "Damage",
            "Damage that readers and scrubs found, and replicas repaired from others.",
            "short",
            {
                f"{{{{instance}}}} {what}": "sum by (instance)"
                f" (increase(tidelog_damage_{what}_total[1h]))"
                for what in ("found", "repaired")
            },
        ),
    ),
)

_TRANSACTIONS: Final = Row(
    "Staged writes",
    (
        Panel(
            "Transactions",
            "Names of staged writes by state.",
            "short",
            {"{{state}}": "max by (state) (tidelog_transactions)"},
        ),
        Panel(
            "Oldest open transaction",
            "Its staged records, and those of later transactions, stay on disk until it ends.",
            "s",
            {"oldest": "max(tidelog_oldest_open_transaction_seconds)"},
        ),
        Panel(
            "Staged bytes",
            "Bytes of staging logs by broker.",
            "bytes",
            {"{{instance}}": "sum by (instance) (tidelog_staged_bytes)"},
            is_stacked=True,
        ),
    ),
)

CLUSTER: Final = Board(
    "tidelog-cluster",
    "tidelog: cluster",
    "Health, requests, brokers, replication and disks of a cluster, for its operators.",
    (),
    (_HEALTH, _REQUESTS, _BROKERS, _REPLICATION, _DISKS, _TRANSACTIONS),
)
