"""Listener that commits each written batch of a stream to its group at once.

Shell: sends requests to controllers from the program that has the queries. The source learns that a
batch is written only when Spark asks it for the next one. Spark's progress report comes right after
each batch, also after the last one of a query, when the sink has written it.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from tidelog.spark_connector.options import (
    CONNECTION_NAMES,
    SERVERS,
    ConnectionOptions,
    GivenOptions,
)
from tidelog.spark_connector.read.offset_commit import commit_position
from tidelog.spark_connector.read.offset_ranges import GROUP, IDS, StreamOffset
from tidelog.spark_connector.user_settings import with_user_settings
from tidelog.wire.errors import TidelogError

_log: Final = logging.getLogger(__name__)


class WrittenPosition(NamedTuple):
    """Position of one source of a query, all of whose records below are written."""

    group_id: str
    brokers: str
    """Addresses with commas between them, as the query has them."""
    position: StreamOffset


def written_positions(progress: str) -> Iterator[WrittenPosition]:
    """Yield the position of each source of tidelog that has a group.

    Args:
        progress: The JSON of a progress report of Spark, which it makes after a batch.
    """
    found: Any = json.loads(progress)
    for source in found["sources"]:
        end, latest = source.get("endOffset"), source.get("latestOffset")
        if isinstance(end, dict) and IDS in end and isinstance(latest, dict) and GROUP in latest:
            group: Mapping[str, str] = latest[GROUP]
            yield WrittenPosition(group["name"], group["brokers"], StreamOffset.from_json(end))


@final
class GroupCommits(StreamingQueryListener):
    """Listener of all queries of a session; streams without a `groupId` do not concern it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Create a listener with options of the connection, such as `client.token`.

        The brokers are those of the queries, and environment and profile add to the options.

        Raises:
            ConfigError: An option is none of the connection, or invalid.
        """
        self._options = dict(options)
        self._committed: dict[str, StreamOffset] = {}
        self._connection("127.0.0.1")  # Checks the options.

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Do nothing: no batch is written yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Commit the end of the batch; a failure stops no query."""
        for written in written_positions(event.progress.json):
            if self._committed.get(written.group_id) == written.position:
                continue
            try:
                connection = self._connection(written.brokers)
                commit_position(connection, written.group_id, written.position)
                self._committed[written.group_id] = written.position
            except TidelogError as error:
                _log.warning("the offsets of a group were not committed: %s", error)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing: the last progress had the position."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Do nothing: the last progress had the position."""

    def _connection(self, brokers: str) -> ConnectionOptions:
        given = with_user_settings({**self._options, SERVERS: brokers})
        return ConnectionOptions.parse(GivenOptions(given, CONNECTION_NAMES))
