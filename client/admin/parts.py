"""Parts of the administration that are imported at their first use: commands start quickly."""

from typing import TYPE_CHECKING

from tidelog.client.lazy_module import LazyModule

if TYPE_CHECKING:
    from tidelog.client.admin import (
        alert_check,
        groups,
        hot_keys,
        metrics,
        queue_batches,
        queue_counts,
        queues,
        transaction_names,
    )
else:
    alert_check = LazyModule("tidelog.client.admin.alert_check")
    groups = LazyModule("tidelog.client.admin.groups")
    hot_keys = LazyModule("tidelog.client.admin.hot_keys")
    metrics = LazyModule("tidelog.client.admin.metrics")
    queue_batches = LazyModule("tidelog.client.admin.queue_batches")
    queue_counts = LazyModule("tidelog.client.admin.queue_counts")
    queues = LazyModule("tidelog.client.admin.queues")
    transaction_names = LazyModule("tidelog.client.admin.transaction_names")

__all__ = [
    "alert_check",
    "groups",
    "hot_keys",
    "metrics",
    "queue_batches",
    "queue_counts",
    "queues",
    "transaction_names",
]
