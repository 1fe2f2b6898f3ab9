"""Collector of the metrics of consumer groups, on the active controller.

Shell: asks the leaders of partitions. With very many partitions it asks less often, so that the
questions stay below a hundredth of a core.
"""

from collections.abc import Callable
from typing import Final, Protocol, final

import trio

from tidelog.broker.collectors.slow_read import SlowRead
from tidelog.broker.metrics import catalog
from tidelog.broker.metrics.object_counts import OBJECTS_MAX
from tidelog.coordinator.group_coordinator.admin import GroupLags
from tidelog.wire.metrics.metric import Family, Value, family

_PARTITIONS_PER_S: Final = 500
"""Partitions for each second of the time until the next questions."""
_ASKING_S: Final = 4.0
"""Maximum time in seconds that a page waits for answers; then it has the last ones."""


class Administration(Protocol):
    """The groups of a cluster."""

    @property
    def asked_count(self) -> int:
        """Number of partitions that the last `progress` asked about."""
        ...

    async def progress(self) -> list[GroupLags]:
        """Return the progress of all groups."""
        ...


@final
class GroupCollector:
    """Reads the progress of groups."""

    def __init__(
        self,
        administration: Administration,
        nursery: trio.Nursery,
        *,
        is_controller: Callable[[], bool],
        topic_name: Callable[[bytes], str | None],
    ) -> None:
        """Read the groups of `administration` while `is_controller`; name topics by id.

        Questions run in `nursery`: an answer that comes too late for one page is for the next.
        """
        self._administration = administration
        self._is_controller = is_controller
        self._topic_name = topic_name
        self._lags = SlowRead(
            nursery,
            self._ask,
            name="asking for the progress of groups",
            value=list[GroupLags](),
            wait_s=_ASKING_S,
        )
        self.maximum = OBJECTS_MAX
        """Maximum of groups with series, those with settings of an owner first; others have none.
        """

    async def families(self) -> list[Family]:
        """Return the metrics of all groups; of slow answers, the last ones that came."""
        if not self._is_controller():
            self._lags.value, self._lags.ended_at = [], float("-inf")
            return []
        pause_s = self._administration.asked_count / _PARTITIONS_PER_S
        if self._lags.is_running or trio.current_time() - self._lags.ended_at >= pause_s:
            await self._lags.refresh()
        return self._families()

    async def _ask(self) -> list[GroupLags]:
        found = await self._administration.progress()
        found.sort(key=lambda one: (not one.has_settings, one.group_id))
        return found[: self.maximum] if self._is_controller() else []

    def _families(self) -> list[Family]:
        records: list[tuple[tuple[str, ...], Value]] = []
        seconds: list[tuple[tuple[str, ...], Value]] = []
        lost: list[tuple[tuple[str, ...], Value]] = []
        shown = self._lags.value
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
