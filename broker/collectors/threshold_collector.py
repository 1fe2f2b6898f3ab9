"""Collector of the thresholds that owners have set for their queues and groups.

Shell: checkpoints.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final, final

import trio

from tidelog.broker.metrics import catalog
from tidelog.broker.metrics.object_counts import ObjectCounts
from tidelog.broker.metrics.queue_totals import QueueTotals
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.groups.group import Group
from tidelog.coordinator.metadata.broker_delta import BrokerDelta
from tidelog.wire.config.group_config import group_settings
from tidelog.wire.config.queue_config import QueueConfig
from tidelog.wire.errors import InvalidConfigError
from tidelog.wire.metrics.metric import Family, Value, family

_AT_ONCE: Final = 500
"""Queues that are looked at before other tasks run."""

Rows = list[tuple[tuple[str, ...], Value]]


@final
class ThresholdCollector:
    """Reads the thresholds of queues when the metadata have changed, and those of groups."""

    def __init__(self, metadata: ReplicatedState, counts: ObjectCounts[QueueTotals]) -> None:
        """Read the settings in `metadata`; queues with thresholds always have `counts`."""
        self._metadata = metadata
        self._counts = counts
        self._changes = 0
        """Changes of the metadata so far."""
        self._found_changes = -1
        """Those that the found queues take into account."""
        self._queues: list[tuple[str, QueueConfig]] = []
        """Names and settings of the queues with thresholds."""
        metadata.subscribe(self._on_metadata, hears_transactions=False)

    async def refresh(self) -> None:
        """Find the queues with thresholds, if the metadata have changed."""
        changes = self._changes
        if changes == self._found_changes:
            return
        found: list[tuple[str, QueueConfig]] = []
        for number, journal in enumerate(list(self._metadata.state.catalog.journals)):
            if number % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            config = journal.queue_config
            if config is not None and _has_threshold(config):
                found.append((journal.queue_name, config))
        self._queues, self._found_changes = found, changes
        self._counts.pinned = {name for name, _ in found}

    def families(self) -> list[Family]:
        """Return the thresholds, as of the last refresh; an owner may be empty."""
        ages: Rows = []
        depths: Rows = []
        dead_letters: Rows = []
        for name, config in self._queues:
            labels = name, config.owner or ""
            if config.alert_age_ms is not None:
                ages.append((labels, config.alert_age_ms / 1000))
            if config.alert_depth is not None:
                depths.append((labels, config.alert_depth))
            if config.alert_dead_letters is not None:
                labelled = (*labels, config.dead_letter_queue or "")
                dead_letters.append((labelled, config.alert_dead_letters))
        return [
            family(catalog.QUEUE_ALERT_AGE, ages),
            family(catalog.QUEUE_ALERT_DEPTH, depths),
            family(catalog.QUEUE_ALERT_DEAD_LETTERS, dead_letters),
            *_thresholds_of_groups(self._metadata.groups.groups),
        ]

    def _on_metadata(self, delta: BrokerDelta) -> None:
        del delta
        self._changes += 1


def _has_threshold(config: QueueConfig) -> bool:
    values = (config.alert_age_ms, config.alert_depth, config.alert_dead_letters)
    return any(value is not None for value in values)


def _thresholds_of_groups(groups: Mapping[str, Group]) -> list[Family]:
    seconds: Rows = []
    records: Rows = []
    for group_id, group in groups.items():
        if not group.overrides:
            continue
        with suppress(InvalidConfigError):  # a setting of a newer version
            settings = group_settings(group.overrides)
            labels = group_id, settings.owner or ""
            if settings.alert_lag_ms is not None:
                seconds.append((labels, settings.alert_lag_ms / 1000))
            if settings.alert_lag_records is not None:
                records.append((labels, settings.alert_lag_records))
    return [
        family(catalog.GROUP_ALERT_LAG, seconds),
        family(catalog.GROUP_ALERT_RECORDS, records),
    ]
