"""Collector of the metrics of consumer groups, on the active controller.

Shell: asks the leaders of partitions. With very many partitions it asks less often, so that the
questions stay below a hundredth of a core.
"""

from collections.abc import Callable
from typing import Final, final

import trio

from tidelog.broker.metrics import catalog
from tidelog.broker.metrics.object_counts import OBJECTS_MAX
from tidelog.coordinator.group_coordinator.admin import GroupAdministration, GroupLags
from tidelog.wire.metrics.metric import Family, Value, family

_PARTITIONS_PER_S: Final = 500
"""Partitions for each second of the time until the next questions."""
_ASKING_S: Final = 5.0
"""Maximum time in seconds for the answers; after that the last ones are shown."""


@final
class GroupCollector:
    """Reads the progress of groups."""

    def __init__(
        self,
        administration: GroupAdministration,
        *,
        is_controller: Callable[[], bool],
        topic_name: Callable[[bytes], str | None],
    ) -> None:
        """Read the groups of `administration` while `is_controller`; name topics by id."""
        self._administration = administration
        self._is_controller = is_controller
        self._topic_name = topic_name
        self._progress: list[GroupLags] = []
        self._asked_at = float("-inf")
        self.maximum = OBJECTS_MAX
        """Maximum of groups with series, those with settings of an owner first; others have none.
        """

    async def families(self) -> list[Family]:
        """Return the metrics of all groups."""
        if not self._is_controller():
            self._progress, self._asked_at = [], float("-inf")
            return []
        now = trio.current_time()
        if now - self._asked_at >= self._administration.partition_count / _PARTITIONS_PER_S:
            with trio.move_on_after(_ASKING_S):
                self._progress = await self._administration.progress()
                self._asked_at = now
        return self._families()

    def _families(self) -> list[Family]:
        records: list[tuple[tuple[str, ...], Value]] = []
        seconds: list[tuple[tuple[str, ...], Value]] = []
        lost: list[tuple[tuple[str, ...], Value]] = []
        ordered = sorted(self._progress, key=lambda one: (not one.has_settings, one.group_id))
        shown = ordered[: self.maximum]
        for group in shown:
            for topic_id, lag in group.lag_of.items():
                topic = self._topic_name(topic_id)
                if topic is None:
                    continue  # It was deleted.
                labels = (group.group_id, topic)
                if lag.records is not None:
                    records.append((labels, lag.records))
                if lag.time_ms is not None:
                    seconds.append((labels, lag.time_ms / 1000))
                lost.append((labels, lag.lost_records))
        return [
            family(catalog.GROUP_LAG_RECORDS, records),
            family(catalog.GROUP_LAG_SECONDS, seconds),
            family(catalog.GROUP_LOST_RECORDS, lost),
            family(catalog.GROUP_MEMBERS, [((one.group_id,), one.member_count) for one in shown]),
            family(catalog.GROUP_EPOCH, [((one.group_id,), one.epoch) for one in shown]),
        ]
