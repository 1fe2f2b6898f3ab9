"""The dashboard of topics and consumer groups, for their developers."""

from typing import Final

from tools.dashboards.grafana import Board, Panel, Row, Variable, selected

_TOPICS: Final = Row(
    "Topics",
    (
        Panel(
            "Received bytes",
            "Bytes of produced batches, as compressed by producers.",
            "Bps",
            {
                "{{topic}}": "sum by (topic)"
                ' (rate(tidelog_topic_received_bytes_total{topic=~"$topic"}[$__rate_interval]))'
            },
            is_stacked=True,
        ),
        Panel(
            "Received records",
            "Produced records.",
            "cps",
            {
                "{{topic}}": "sum by (topic)"
                ' (rate(tidelog_topic_received_records_total{topic=~"$topic"}[$__rate_interval]))'
            },
            is_stacked=True,
        ),
        Panel(
            "Records of a batch",
            "Average number of records in a batch. Small batches cost most CPU: raise linger_ms.",
            "short",
            {
                "{{topic}}": "sum by (topic)"
                ' (rate(tidelog_topic_received_records_total{topic=~"$topic"}[$__rate_interval]))'
                " / sum by (topic)"
                ' (rate(tidelog_topic_received_batches_total{topic=~"$topic"}[$__rate_interval]))'
            },
        ),
        Panel(
            "Sent bytes",
            "Bytes sent to consumers; those to followers do not count.",
            "Bps",
            {
                "{{topic}}": "sum by (topic)"
                ' (rate(tidelog_topic_sent_bytes_total{topic=~"$topic"}[$__rate_interval]))'
            },
            is_stacked=True,
        ),
        Panel(
            "Refused batches",
            "Batches that leaders refused; the board of the cluster has the error codes.",
            "cps",
            {
                "{{topic}}": "sum by (topic)"
                ' (rate(tidelog_topic_refused_batches_total{topic=~"$topic"}[$__rate_interval]))'
                " > 0"
            },
        ),
        Panel(
            "Size",
            "Bytes of all replicas of a topic.",
            "bytes",
            {"{{topic}}": 'sum by (topic) (tidelog_log_bytes{topic=~"$topic"})'},
            is_stacked=True,
        ),
        Panel(
            "Lag of followers",
            "Records that the slowest follower of a topic has not fetched.",
            "short",
            {"{{topic}}": 'max by (topic) (tidelog_replica_lag_records{topic=~"$topic"})'},
        ),
        Panel(
            "Hot partitions",
            "Partitions with a large share of the traffic of their broker; `tidelog topic hot`"
            " names them and their keys.",
            "short",
            {"{{topic}}": 'sum by (topic) (tidelog_hot_partitions{topic=~"$topic"})'},
        ),
    ),
)

_SELECTED: Final = '{group=~"$group", topic=~"$topic"}'

_GROUPS: Final = Row(
    "Groups",
    (
        Panel(
            "Lag in time",
            "Age of the oldest record that a group has not committed.",
            "s",
            {
                "{{group}} {{topic}}": "max by (group, topic)"
                f" (tidelog_group_lag_seconds{_SELECTED})"
            },
        ),
        Panel(
            "Lag in time in relation to its threshold",
            "Lag of groups with the setting alert_lag_ms; the alert GroupLag fires above 100 %.",
            "percentunit",
            {
                "{{group}} {{topic}}": "max by (group, topic)"
                f" (tidelog_group_lag_seconds{_SELECTED})"
                " / on (group) group_left ()"
                ' max by (group) (tidelog_group_alert_lag_seconds{group=~"$group"})'
            },
        ),
        Panel(
            "Lag in records",
            "Records that a group has not committed.",
            "short",
            {
                "{{group}} {{topic}}": "max by (group, topic)"
                f" (tidelog_group_lag_records{_SELECTED})"
            },
        ),
        Panel(
            "Records in relation to their threshold",
            "Records that groups with the setting alert_lag_records have not committed; the alert"
            " GroupLag fires above 100 %.",
            "percentunit",
            {
                "{{group}}": 'sum by (group) (tidelog_group_lag_records{group=~"$group"})'
                " / on (group)"
                ' max by (group) (tidelog_group_alert_lag_records{group=~"$group"})'
            },
        ),
        Panel(
            "Lost records",
            "Records that retention deleted before the group committed them.",
            "short",
            {
                "{{group}} {{topic}}": "max by (group, topic)"
                f" (tidelog_group_lost_records{_SELECTED})"
            },
        ),
        Panel(
            "Members",
            "Members of a group.",
            "short",
            {"{{group}}": 'max by (group) (tidelog_group_members{group=~"$group"})'},
        ),
        Panel(
            "Rebalances",
            "Epochs of a group that ended within 10 minutes. Many say that members come and go.",
            "short",
            {"{{group}}": 'max by (group) (delta(tidelog_group_epoch{group=~"$group"}[10m]))'},
        ),
    ),
)

TOPICS: Final = Board(
    "tidelog-topics",
    "tidelog: topics and groups",
    "Traffic of topics, and the lag of consumer groups.",
    (
        Variable("topic", selected("tidelog_log_bytes")),
        Variable("group", selected("tidelog_group_members")),
    ),
    (_TOPICS, _GROUPS),
)
