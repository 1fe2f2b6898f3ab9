"""Collector of the thresholds that owners have set for their queues and groups.

Pure: no clock, no I/O.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from tidelog.broker.metrics import catalog
from tidelog.coordinator.groups.group import Group
from tidelog.coordinator.metadata.catalog import Topic
from tidelog.wire.config.group_config import group_settings
from tidelog.wire.errors import InvalidConfigError
from tidelog.wire.metrics.metric import Family, Value, family

Rows = list[tuple[tuple[str, ...], Value]]


def thresholds_of_queues(journals: Iterable[Topic]) -> list[Family]:
    """Return the thresholds of the queues of these journals; an owner may be empty."""
    ages: Rows = []
    depths: Rows = []
    dead_letters: Rows = []
    for journal in journals:
        config = journal.queue_config
        assert config is not None, "a journal has the settings of its queue"
        labels = journal.queue_name, config.owner or ""
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
    ]


def thresholds_of_groups(groups: Mapping[str, Group]) -> list[Family]:
    """Return the thresholds of groups; an owner may be empty."""
    seconds: Rows = []
    records: Rows = []
    for group_id, group in groups.items():
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
