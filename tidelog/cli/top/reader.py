"""Readings of a cluster for `tidelog top`.

Shell: asks all brokers.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import trio

from tidelog.cli.errors import CommandError
from tidelog.cli.top.activity import Activity, Reading, activity_of
from tidelog.client.client import Client
from tidelog.wire.errors import TidelogError, UnsupportedVersionError

_ALERTS_S: Final = 10.0
"""Seconds for a check of all alerts."""


class Wanted(NamedTuple):
    """What a view asks for."""

    families: Sequence[str]
    """Families of metrics, as in `Admin.metrics`."""
    names: str = ""
    """Globs for names; empty for all."""
    interval_s: float = 2.0
    """Seconds between two readings."""


async def measure(client: Client, wanted: Wanted) -> Activity:
    """Return the activity between two readings; errors as in `read`."""
    before = await read(client, wanted)
    await trio.sleep(wanted.interval_s)
    after = await read(client, wanted)
    return activity_of(before, after, alert_count=await count_alerts(client))


async def read(client: Client, wanted: Wanted) -> Reading:
    """Read the metrics and the health of a cluster.

    Raises:
        CommandError: No broker offers metrics.
    """
    brokers = await client.admin.metrics(wanted.families, wanted.names)
    read_at = trio.current_time()
    has_topics = "log_bytes" in wanted.families  # Their partitions out of sync are counted.
    cluster = await client.admin.describe_cluster(with_partitions=has_topics)
    old = [each.error for each in brokers if isinstance(each.error, UnsupportedVersionError)]
    if old and all(each.error is not None for each in brokers):
        raise CommandError(f"no broker offers metrics: {old[0]}; upgrade the brokers")
    return Reading(cluster, brokers, read_at)


async def count_alerts(client: Client) -> int | None:
    """Return the number of alerts that fire; `None` if it cannot be found out in time."""
    with trio.move_on_after(_ALERTS_S):
        try:
            return len((await client.admin.alerts()).alerts)
        except TidelogError:
            return None
    return None
