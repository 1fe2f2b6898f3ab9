"""Clients of a cluster under faults, which restart after every error."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, final

import trio

import tidelog
from tests.simulation.checkers.history import Key, Outcome, Poll
from tests.system.histories.recorder import Recorder
from tests.system.netns.plan import Roles
from tidelog.wire.errors import TidelogError

_REQUEST_TIMEOUT_S: Final = 5.0
_BACKOFF_S: Final = 0.1
_LOOK_S: Final = 0.3
_GROUP: Final = "crew"


@asynccontextmanager
async def connected(addresses: str) -> AsyncGenerator[tidelog.Client, None]:
    """Connect, and retry: the client tries a first connection only once."""
    async with AsyncExitStack() as stack:
        client: tidelog.Client | None = None
        while client is None:
            try:
                client = await stack.enter_async_context(
                    tidelog.connect(addresses, request_timeout=_REQUEST_TIMEOUT_S)
                )
            except TidelogError:
                await trio.sleep(_BACKOFF_S)
        yield client


@final
class GroupMember:
    """One member of a consumer group, and the records that it received."""

    def __init__(self, name: str, topics: Sequence[str], recorder: Recorder) -> None:
        """Join as `name`."""
        self.offsets: dict[Key, set[int]] = {}
        """Offsets of all received records."""
        self._name = name
        self._topics = topics
        self._recorder = recorder

    async def work(self, client: tidelog.Client) -> None:
        """Process records without end; join again after an error."""
        while True:
            try:
                async with client.consumer(
                    self._topics,
                    group_id=_GROUP,
                    auto_offset_reset="earliest",
                    auto_commit_interval=1.0,
                ) as consumer:
                    await self._process(consumer)
            except TidelogError:
                await trio.sleep(_BACKOFF_S)

    async def _process(self, consumer: tidelog.Consumer) -> None:
        async for batch in consumer.batches():
            # Another member may have had the partition since its last batch here.
            number = self._recorder.begin(self._name, seeks=True)
            values = [(value or b"").decode() for value in batch.values]
            entries = list(zip(batch.offsets, values, strict=True))
            key = f"{batch.topic}/{batch.partition}"
            self._recorder.end(number, self._name, Outcome.OK, steps=[Poll({key: entries})])
            self.offsets.setdefault(key, set()).update(batch.offsets)


@final
class Lookout:
    """Client that polls the state of the cluster."""

    def __init__(self, client: tidelog.Client) -> None:
        """Send requests through `client`."""
        self._client = client

    async def roles(self) -> Roles:
        """Return the roles of the brokers.

        Raises:
            TidelogError: No broker answers.
        """
        cluster = await self._client.admin.describe_cluster()
        leaders = [
            partition.leader_id
            for topic in await self._client.admin.describe_topics()
            for partition in topic.partitions
        ]
        known = tuple(leader for leader in leaders if leader is not None)
        return Roles(known, cluster.controller_id)

    async def describe(self) -> str:
        """Return the state of the cluster, as it reports it."""
        try:
            cluster = await self._client.admin.describe_cluster(with_partitions=True)
        except TidelogError as error:
            return str(error)
        return f"{cluster.nodes} {cluster.partitions}"

    async def accept_losses(self, topic: str) -> int:
        """Wait until all brokers are alive, and elect leaders of partitions without one.

        Returns the number of these partitions: as far as the cluster knows, killed processes had
        records in memory alone. Partitions of other topics than `topic` are left as they are.
        """
        while True:
            await trio.sleep(_LOOK_S)
            try:
                cluster = await self._client.admin.describe_cluster()
                if any(node.status != "alive" for node in cluster.nodes):
                    continue
                if not cluster.leaderless_count:
                    return 0
                elected = await self._client.admin.elect_leaders(topic, accept_data_loss=True)
            except TidelogError:
                continue
            return sum(each.may_have_lost_data for each in elected)

    async def wait_in_sync(self) -> dict[Key, list[int]]:
        """Return the replicas of each partition, as soon as all of them are in sync."""
        while True:
            await trio.sleep(_LOOK_S)
            try:
                topics = await self._client.admin.describe_topics()
            except TidelogError:
                continue
            if all(
                set(partition.in_sync_replicas) == set(partition.replicas)
                and partition.leader_id is not None
                for topic in topics
                for partition in topic.partitions
            ):
                return {
                    f"{topic.name}/{partition.partition}": partition.replicas
                    for topic in topics
                    for partition in topic.partitions
                }
