"""Tests of the offset lookup, for partitions of any leader."""

from collections.abc import Awaitable, Callable, Mapping
from typing import final

import pytest
import trio

from tests.broker.broker_requests import batch_of
from tests.broker.logs import TOPIC_ID, config_of, open_partition_log
from tests.broker.world import START_MS
from tests.cluster_secret import dialer_of
from tests.coordinator.command_cluster import Cluster
from tests.coordinator.raft_clients import until
from tests.coordinator.raft_nodes import CLUSTER_ID, PORT, Host, Made, watch_roles
from tests.simulation.machine.faulty_disk import FaultyDisk
from tests.simulation.machine.world import Simulation, World
from tidelog.broker.handlers.list_offsets import ListOffsetsHandler
from tidelog.broker.handlers.offset_lookup import OffsetLookup
from tidelog.broker.partitions.offset_search import OffsetSearch, time_of
from tidelog.broker.partitions.partition import Partition
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.groups.commits import OffsetRange
from tidelog.coordinator.groups.partitions import Partition as PartitionKey
from tidelog.coordinator.metadata.commands import CreateReplicatedTopic
from tidelog.coordinator.raft_node.node import RaftNode
from tidelog.coordinator.raft_node.peer_client import PeerClient
from tidelog.wire.batch.record_batch import Columns, check_produced, encode_batch, parse_header
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    ErrorCode,
    InvalidRequestError,
    NotLeaderError,
)
from tidelog.wire.messages.offset_ranges import (
    ListOffsetsReply,
    ListOffsetsRequest,
    OffsetQuery,
    PartitionOffsets,
)
from tidelog.wire.protocol import api

PARTITION_COUNT = 6


@final
class Led:
    """The partitions of one broker; partition N has N batches of three records, a second each."""

    def __init__(self, metadata: ReplicatedState, node_id: int) -> None:
        self._metadata = metadata
        self._node_id = node_id
        self._open: dict[int, Partition] = {}

    def find(self, topic_id: bytes, number: int) -> Partition:
        partition = self._metadata.state.partition(topic_id, number)
        if partition is None or partition.leader != self._node_id:
            raise NotLeaderError("another broker leads it")
        if number not in self._open:
            self._open[number] = filled(number)
        return self._open[number]

    def find_journal(self, queue_id: bytes, number: int) -> Partition:
        return self.find(queue_id, number)

    def replica(self, topic_id: bytes, number: int) -> Partition | None:
        return self._open.get(number) if topic_id == TOPIC_ID else None

    @property
    def may_lead(self) -> bool:
        return True


def ignore(event: str, **fields: object) -> None:
    """Ignore a change of a partition's status."""


def filled(batch_count: int) -> Partition:
    config = config_of("replicated")
    log = open_partition_log(FaultyDisk(), config)
    for number in range(batch_count):
        first_ms = START_MS + 3000 * number
        columns = Columns(3, timestamp_deltas=[0, 1000, 2000], values=[b"x"] * 3)
        batch = memoryview(encode_batch(columns, first_timestamp_ms=first_ms))
        log.append(batch, check_produced(batch), leader_epoch=0, now_ms=0)
    partition = Partition(TOPIC_ID, 0, log, topic="orders", config=config, probe=ignore)
    partition.lead(0)
    partition.progressed()
    return partition


class LogsCluster(Cluster):
    """Three nodes, each of which leads some partitions of a topic."""

    def __init__(self, world: World) -> None:
        super().__init__(world, has_brokers=True)
        self.lookups: dict[int, OffsetLookup] = {}
        self.handlers: dict[int, ListOffsetsHandler] = {}
        self.asked: list[int] = []
        """Number of questions in each request of a broker."""

    def _make(self, env: Env, node: RaftNode, nursery: trio.Nursery) -> Made:
        made = super()._make(env, node, nursery)
        assert isinstance(made.state, ReplicatedState)
        node_id = node.identity.node_id
        peers = PeerClient(
            nursery,
            dialer_of(env, node_id),
            name=f"node{node_id}",
            address_of=lambda number: (f"node{number}", PORT),
        )
        led = Led(made.state, node_id)
        local = ListOffsetsHandler(node, made.state, led, search=OffsetSearch(env), peers=peers)
        self.handlers[node_id] = local
        self.lookups[node_id] = OffsetLookup(
            node, made.state, led, local=local, peers=peers, nursery=nursery
        )

        async def answer(request: ListOffsetsRequest) -> ListOffsetsReply:
            self.asked.append(len(request.partitions))
            return await local.answer(request)

        return Made(made.state, {**made.slow_answers, api.LIST_OFFSETS: answer}, made.tasks)

    async def begin(self) -> tuple[Host, OffsetLookup]:
        """Wait for the brokers and the topic; return one of them."""
        leader, _ = await self.leader_and_another()
        await until(
            lambda: (
                len(self.lifecycles) == 3
                and all(each.may_lead() for each in self.lifecycles.values())
            )
        )
        topic = CreateReplicatedTopic("orders", TOPIC_ID, PARTITION_COUNT, {})
        await self.submit(leader, topic)
        await until(lambda: sum(len(self.led_by(host)) for host in self.group) == PARTITION_COUNT)
        return leader, self.lookups[leader.node_id]

    def led_by(self, host: Host) -> list[int]:
        """Return the partitions that a host leads."""
        assert isinstance(host.state, ReplicatedState)
        partitions = host.state.state.partitions(TOPIC_ID)
        return [number for number, one in enumerate(partitions) if one.leader == host.node_id]


def play(story: Callable[[LogsCluster], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        watch_roles(world)
        cluster = LogsCluster(world)
        for host in cluster.group:
            host.start()
        with trio.fail_after(600):
            await story(cluster)

    Simulation(1).run(main)


def offsets(
    number: int, timestamp_ms: int | None = None, offset: int | None = None
) -> PartitionOffsets:
    end = 3 * number
    return PartitionOffsets(0, end, end, offset=offset, timestamp_ms=timestamp_ms)


def test_offsets_of_all_leaders_are_returned_in_the_order_asked() -> None:
    async def story(cluster: LogsCluster) -> None:
        host, lookup = await cluster.begin()
        assert 0 < len(cluster.led_by(host)) < PARTITION_COUNT
        numbers = [4, 0, 5, 2, 1, 3]

        found = await lookup.ask([OffsetQuery(TOPIC_ID, number) for number in numbers])

        assert found == [offsets(number) for number in numbers]

    play(story)


def test_the_time_of_a_record_and_the_record_of_a_time_are_found() -> None:
    async def story(cluster: LogsCluster) -> None:
        _, lookup = await cluster.begin()

        async def ask(number: int, **searched: int) -> PartitionOffsets:
            question = OffsetQuery(TOPIC_ID, number, **searched)
            (found,) = await lookup.ask([question])
            return found

        for number in range(2, PARTITION_COUNT):
            assert await ask(number, at_offset=4) == offsets(number, START_MS + 4000)
            after = START_MS + 1
            assert await ask(number, at_timestamp_ms=after) == offsets(number, START_MS + 1000, 1)
            end = 3 * number
            assert await ask(number, at_timestamp_ms=START_MS + 3_600_000) == offsets(number)
            assert await ask(number, at_offset=end) == offsets(number)
            assert await ask(number, at_offset=end + 5) == offsets(number)

    play(story)


def test_only_partitions_of_an_unreachable_leader_have_errors() -> None:
    async def story(cluster: LogsCluster) -> None:
        host, lookup = await cluster.begin()
        dead = next(each for each in cluster.group if each is not host)
        lost = cluster.led_by(dead)
        dead.cut_power()

        questions = [OffsetQuery(TOPIC_ID, number) for number in range(PARTITION_COUNT)]
        found = await lookup.ask(questions)
        unknown = await lookup.ask([OffsetQuery(b"elsewhere".ljust(16), 0)])

        assert lost
        for number, one in enumerate(found):
            if number in lost:
                assert one.error is not None
                assert one.error.code == ErrorCode.LEADER_NOT_AVAILABLE
            else:
                assert one == offsets(number)
        assert unknown[0].error is not None

    play(story)


def test_concurrent_lookups_are_batched_into_one_request_per_node() -> None:
    async def story(cluster: LogsCluster) -> None:
        _, lookup = await cluster.begin()
        answers: list[Mapping[PartitionKey, OffsetRange]] = []
        wanted = [(TOPIC_ID, number) for number in range(PARTITION_COUNT)]

        for _ in range(100):
            lookup.look_up(wanted, answers.append)
        await until(lambda: len(answers) == 100)

        expected = {
            (TOPIC_ID, number): OffsetRange(0, 3 * number) for number in range(PARTITION_COUNT)
        }
        assert answers == [expected] * 100
        assert len(cluster.asked) == 2
        assert sum(cluster.asked) < PARTITION_COUNT

    play(story)


def test_offsets_of_local_leaders_are_found_at_once() -> None:
    async def story(cluster: LogsCluster) -> None:
        host, lookup = await cluster.begin()
        number = cluster.led_by(host)[0]
        answers: list[Mapping[PartitionKey, OffsetRange]] = []

        lookup.look_up([(TOPIC_ID, number)], answers.append)

        assert answers == [{(TOPIC_ID, number): OffsetRange(0, 3 * number)}]

    play(story)


def test_an_unreachable_leader_does_not_delay_other_lookups() -> None:
    async def story(cluster: LogsCluster) -> None:
        host, lookup = await cluster.begin()
        dead = next(each for each in cluster.group if each is not host)
        lost = cluster.led_by(dead)
        dead.cut_power()
        answers: list[Mapping[PartitionKey, OffsetRange]] = []
        asked_at = trio.current_time()

        for number in range(PARTITION_COUNT):
            lookup.look_up([(TOPIC_ID, number)], answers.append)
        await until(lambda: len(answers) == PARTITION_COUNT)

        assert trio.current_time() - asked_at < 3
        found = [{number for _, number in answer} for answer in answers]
        assert set().union(*found) == set(range(PARTITION_COUNT)) - set(lost)
        assert found[-len(lost) :] == [set()] * len(lost), "no other lookup waited for these"

    play(story)


def test_nodes_of_another_cluster_are_refused() -> None:
    async def story(cluster: LogsCluster) -> None:
        host, _ = await cluster.begin()

        with pytest.raises(InvalidRequestError, match=f"belongs to cluster {CLUSTER_ID}"):
            await cluster.handlers[host.node_id].answer(ListOffsetsRequest([], cluster_id="theirs"))

    play(story)


def test_the_time_of_a_record_in_a_batch_is_its_own_or_the_first_of_all() -> None:
    columns = Columns(3, timestamp_deltas=[0, 10, 5], values=[b"x"] * 3)
    batch = bytes(encode_batch(columns, first_timestamp_ms=1000))
    equal = bytes(batch_of(b"a", b"b", at_ms=1000))
    header, equal_header = parse_header(batch), parse_header(equal)
    assert header is not None
    assert equal_header is not None

    assert [time_of(header, batch, offset) for offset in (-1, 0, 1, 2)] == [1000, 1000, 1010, 1005]
    assert time_of(equal_header, equal, 1) == 1000
