"""Parts of the administration that are imported at their first use: commands start quickly."""

from typing import TYPE_CHECKING

from tidelog.client.lazy_module import LazyModule

if TYPE_CHECKING:
    from tidelog.client.admin import alert_check, queue_counts
    from tidelog.client.admin import alerts as alert_admin
    from tidelog.client.admin import groups as group_admin
    from tidelog.client.admin import hot_keys as hot
    from tidelog.client.admin import metrics as broker_metrics
    from tidelog.client.admin import queues as queue_admin
else:
    alert_admin = LazyModule("tidelog.client.admin.alerts")
    alert_check = LazyModule("tidelog.client.admin.alert_check")
    broker_metrics = LazyModule("tidelog.client.admin.metrics")
    group_admin = LazyModule("tidelog.client.admin.groups")
    hot = LazyModule("tidelog.client.admin.hot_keys")
    queue_admin = LazyModule("tidelog.client.admin.queues")
    queue_counts = LazyModule("tidelog.client.admin.queue_counts")

__all__ = [
    "alert_admin",
    "alert_check",
    "broker_metrics",
    "group_admin",
    "hot",
    "queue_admin",
    "queue_counts",
]
