"""The dashboard of queues, for their owners."""

from typing import Final

from tools.dashboards.grafana import SELECTOR, Board, Panel, Row, Variable

_SELECTED: Final = '{queue=~"$queue"}'


def _gauge(name: str, fold: str = "sum") -> str:
    return f"{fold} by (queue) (tidelog_queue_{name}{_SELECTED})"


def _rate(name: str) -> str:
    return f"sum by (queue) (rate(tidelog_queue_{name}_total{_SELECTED}[$__rate_interval]))"


def _share(value: str, threshold: str) -> str:
    """Return a value in relation to a threshold above 0, with the owner of the queue."""
    return (
        f"{value} / on (queue) group_left (owner)"
        f" topk by (queue) (1, tidelog_queue_alert_{threshold}{_SELECTED} > 0)"
    )


_ALERTS: Final = Row(
    "Values in relation to their thresholds: alerts fire above 100 %",
    (
        Panel(
            "Age",
            "Age of the oldest message in relation to alert_age_ms (QueueTooOld).",
            "percentunit",
            {
                "{{owner}} {{queue}}": _share(
                    _gauge("oldest_message_age_seconds", "max"), "age_seconds"
                )
            },
        ),
        Panel(
            "Depth",
            "Visible messages in relation to alert_depth (QueueTooDeep).",
            "percentunit",
            {"{{owner}} {{queue}}": _share(_gauge("ready"), "depth")},
        ),
        Panel(
            "Dead letters",
            "Dead letters that are not moved, in relation to alert_dead_letters. The alert"
            " QueueDeadLetters also counts the messages of the dead-letter queue.",
            "percentunit",
            {"{{owner}} {{queue}}": _share(_gauge("dead"), "dead_letters")},
        ),
    ),
)

_BACKLOG: Final = Row(
    "Backlog",
    (
        Panel(
            "Age of the oldest message",
            "SQS: ApproximateAgeOfOldestMessage.",
            "s",
            {"{{queue}}": _gauge("oldest_message_age_seconds", "max")},
        ),
        Panel(
            "Visible messages",
            "Messages that can be received (SQS: ApproximateNumberOfMessagesVisible).",
            "short",
            {"{{queue}}": _gauge("ready")},
        ),
        Panel(
            "Messages in flight",
            "Received and not settled (SQS: ApproximateNumberOfMessagesNotVisible).",
            "short",
            {"{{queue}}": _gauge("leased")},
        ),
        Panel(
            "Delayed messages",
            "Messages that become visible later (SQS: ApproximateNumberOfMessagesDelayed).",
            "short",
            {"{{queue}}": _gauge("delayed")},
        ),
        Panel(
            "Dead letters that are not moved",
            "Dead letters that are not in the dead-letter queue yet, or that no queue accepts.",
            "short",
            {"{{queue}}": _gauge("dead")},
        ),
        Panel(
            "Partitions without counts",
            "Queue partitions whose new leader has not counted them yet: their messages are"
            " missing in the panels above.",
            "short",
            {"{{instance}}": "sum by (instance) (tidelog_queue_partitions_unknown)"},
        ),
    ),
)

_FLOW: Final = Row(
    "Messages a second",
    (
        Panel("Sent", "Messages sent.", "cps", {"{{queue}}": _rate("sent")}),
        Panel(
            "Received", "Deliveries, also repeated ones.", "cps", {"{{queue}}": _rate("received")}
        ),
        Panel(
            "Deleted", "Messages that consumers deleted.", "cps", {"{{queue}}": _rate("deleted")}
        ),
        Panel(
            "Redelivered",
            "Deliveries that were not the first: of failed, released or expired messages.",
            "cps",
            {"{{queue}}": _rate("redelivered")},
        ),
        Panel(
            "Released",
            "Messages that consumers returned before their lease ended.",
            "cps",
            {"{{queue}}": _rate("released")},
        ),
        Panel(
            "Expired leases",
            "Leases that ended without a settlement: consumers crash, or the visibility timeout is"
            " too short.",
            "cps",
            {"{{queue}}": _rate("expired_leases")},
        ),
        Panel(
            "Dead letters",
            "Messages that became dead letters.",
            "cps",
            {"{{queue}}": _rate("dead_letters")},
        ),
        Panel(
            "Expired messages",
            "Messages deleted because of their age, received or not.",
            "cps",
            {"{{queue}}": _rate("expired_messages")},
        ),
        Panel(
            "Duplicates and empty receives",
            "Sent messages that were duplicates, and receives without a message.",
            "cps",
            {
                "{{queue}} duplicates": _rate("duplicates_dropped"),
                "{{queue}} empty receives": _rate("empty_receives"),
            },
        ),
    ),
)

QUEUES: Final = Board(
    "tidelog-queues",
    "tidelog: queues",
    "Backlog and flow of queues, for their owners. Queues with a threshold have an owner.",
    (
        Variable("owner", f'{{{SELECTOR}, __name__=~"tidelog_queue_alert_.+"}}'),
        # The metric without the label `owner` lists all queues if every owner is chosen.
        Variable(
            "queue",
            f'{{{SELECTOR}, __name__=~"tidelog_queue_ready|tidelog_queue_alert_.+",'
            ' owner=~"$owner"}',
            is_all_any=False,
        ),
    ),
    (_ALERTS, _BACKLOG, _FLOW),
)
