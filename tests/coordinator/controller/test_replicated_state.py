"""The replicated state: all nodes agree, and one of them at a time decides."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import pytest
import trio

from tests.coordinator.raft_clients import FaultInjector, until
from tests.coordinator.raft_nodes import CONFIG, Host, Made, hosts, watch_roles
from tests.simulation.machine.world import Simulation, World
from tidelog.coordinator.controller import replicated_state
from tidelog.coordinator.controller.replicated_state import ReplicatedState
from tidelog.coordinator.metadata.broker_delta import BrokerDelta
from tidelog.coordinator.metadata.catalog import DeleteTopic, TakeProducerIds
from tidelog.coordinator.metadata.commands import (
    BeginTransaction,
    Command,
    CommandOutcome,
    CreateQueue,
    CreateQueues,
    CreateReplicatedTopic,
    Done,
    FenceBroker,
    ProducerIds,
    QueueResults,
    RegisterBroker,
    Registered,
    Reply,
    TopicAnswer,
    UnfenceBroker,
)
from tidelog.coordinator.metadata.records import BrokerUnregistered
from tidelog.coordinator.metadata.state_machine import MetadataStateMachine
from tidelog.coordinator.raft_node import node as raft_node
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    InvalidRequestError,
    LogOfflineError,
    NotControllerError,
    QueueExistsError,
    RequestTimedOutError,
    TopicExistsError,
    UnknownQueueError,
    from_wire,
)


def make_metadata(env: Env, node: raft_node.RaftNode, _: trio.Nursery) -> Made:
    metadata = ReplicatedState(env, node)
    node.on_role_changed(metadata.role_changed)
    return Made(metadata)


def metadata_of(host: Host) -> ReplicatedState:
    assert isinstance(host.state, ReplicatedState)
    return host.state


def play(story: Callable[[World, list[Host]], Awaitable[None]], *, seed: int = 1) -> None:
    async def main(world: World) -> None:
        watch_roles(world)
        group = hosts(world, 3, make_metadata)
        for host in group:
            host.start()
        with trio.fail_after(600):
            await story(world, group)

    Simulation(seed).run(main)


async def controller_of(group: list[Host]) -> Host:
    """Return the leading host, as soon as there is one."""
    found: list[Host] = []

    def is_there() -> bool:
        found[:] = [host for host in group if host.raft is not None and host.raft.is_active_leader]
        return len(found) == 1

    await until(is_there)
    return found[0]


async def decided(group: list[Host], command: Command) -> Reply:
    """Submit a command to the leader, again and again until it is known to be committed."""
    while True:
        host = await controller_of(group)
        try:
            return await metadata_of(host).decide(command)
        except (NotControllerError, RequestTimedOutError, LogOfflineError):
            await trio.sleep(0.1)


def register(node_id: int) -> RegisterBroker:
    return RegisterBroker(
        node_id, f"disk {node_id}", f"incarnation of {node_id}", f"node{node_id}", 8433
    )


async def with_brokers(group: list[Host]) -> None:
    """Register all three nodes as brokers."""
    for node_id in (1, 2, 3):
        registered = await decided(group, register(node_id))
        assert isinstance(registered, Registered)
        await decided(group, UnfenceBroker(node_id, registered.broker_epoch))


def create(number: int, *, topic_id: bytes | None = None) -> CreateReplicatedTopic:
    return CreateReplicatedTopic(f"topic{number}", topic_id or b"%016d" % number, 2, {})


def names(host: Host) -> list[str]:
    return [topic.name for topic in metadata_of(host).state.catalog.topics]


def test_decisions_reach_all_nodes() -> None:
    async def story(_: World, group: list[Host]) -> None:
        await with_brokers(group)

        reply = await decided(group, create(1))

        assert reply == TopicAnswer(b"%016d" % 1)
        await until(lambda: all(names(host) == ["topic1"] for host in group))
        snapshots = {metadata_of(host).snapshot() for host in group}
        assert len(snapshots) == 1

    play(story)


def test_the_controller_logs_elections_and_leaderless_partitions() -> None:
    async def story(world: World, group: list[Host]) -> None:
        said: dict[str, list[Mapping[str, Any]]] = {}
        world.observe(lambda _, event, fields: said.setdefault(event, []).append(dict(fields)))
        await with_brokers(group)
        await decided(group, create(1))
        state = metadata_of(await controller_of(group)).state
        leaders = {
            number: each.leader for number, each in enumerate(state.partitions(b"%016d" % 1))
        }

        for broker in list(state.brokers.values()):
            await decided(group, FenceBroker(broker.node_id, broker.broker_epoch))

        first, *_ = said["leaders_elected"]
        assert (first["topic"], first["severity"]) == ("topic1", "info")
        assert first["leader_id"] != leaders[first["partition"]]
        offline = said["partitions_offline"]
        assert sum(event["count"] for event in offline) == 2
        assert {event["severity"] for event in offline} == {"warning"}
        assert len(said["node_fenced"]) == 3
        roles = {(event["role"], event["severity"]) for event in said["raft_role_changed"]}
        assert roles >= {("leader", "info"), ("follower", "debug"), ("candidate", "debug")}
        changes = [(event["controller_id"], event["term"]) for event in said["controller_changed"]]
        assert changes == [changes[0]] * len(group), "each node reports it once"

    play(story)


def test_commands_are_pipelined_and_see_earlier_ones() -> None:
    async def story(_: World, group: list[Host]) -> None:
        await with_brokers(group)
        controller = metadata_of(await controller_of(group))
        outcomes: list[object] = []

        async def attempt(command: Command) -> None:
            try:
                outcomes.append(await controller.decide(command))
            except TopicExistsError as error:
                outcomes.append(error)

        began_at = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(attempt, create(number))
            nursery.start_soon(attempt, create(7, topic_id=b"of another topic"))
        elapsed_s = trio.current_time() - began_at

        errors = [outcome for outcome in outcomes if isinstance(outcome, TopicExistsError)]
        assert len(outcomes) == 51
        assert len(errors) == 1
        assert elapsed_s < 1, "many share a sync"

    play(story)


def test_records_that_do_not_fit_the_state_reach_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of a command: its records name a broker that does not exist."""
    handle = MetadataStateMachine.handle

    def handle_wrongly(
        machine: MetadataStateMachine, command: Command, *, now_ms: int
    ) -> CommandOutcome:
        if command == UnfenceBroker(99, 1):
            return CommandOutcome([BrokerUnregistered(1), BrokerUnregistered(99)], Done())
        return handle(machine, command, now_ms=now_ms)

    monkeypatch.setattr(MetadataStateMachine, "handle", handle_wrongly)

    async def story(_: World, group: list[Host]) -> None:
        await with_brokers(group)
        leading = await controller_of(group)
        assert leading.raft is not None
        before = leading.raft.commit_index

        with pytest.raises(KeyError):
            await metadata_of(leading).decide(UnfenceBroker(99, 1))

        assert sorted(metadata_of(leading).newest_state().brokers) == [1, 2, 3]
        assert leading.raft.commit_index == before
        assert await metadata_of(leading).decide(create(1)) == TopicAnswer(b"%016d" % 1)

    play(story)


def test_a_repeated_command_is_applied_once_and_answered_when_committed() -> None:
    async def story(_: World, group: list[Host]) -> None:
        await with_brokers(group)
        controller = metadata_of(await controller_of(group))
        states: list[int] = []

        async def attempt() -> None:
            assert await controller.decide(create(1)) == TopicAnswer(b"%016d" % 1)
            states.append(len(controller.state.catalog.topics))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(attempt)
            nursery.start_soon(attempt)

        assert states == [1, 1]

    play(story)


def test_a_broker_with_very_many_partitions_can_be_fenced_and_unfenced() -> None:
    async def story(_: World, group: list[Host]) -> None:
        await with_brokers(group)
        for number in range(5):
            await decided(
                group,
                CreateReplicatedTopic(
                    f"topic{number}", b"%016d" % number, 10_000, {}, replication_factor=3
                ),
            )
        controller = await controller_of(group)
        state = metadata_of(controller).state
        assert state.index.load(2).leader_count > 16_000

        await decided(group, FenceBroker(2, state.brokers[2].broker_epoch))

        await until(
            lambda: all(metadata_of(host).state.index.load(2).leader_count == 0 for host in group)
        )

    play(story)


def test_a_command_too_large_for_an_entry_is_refused() -> None:
    async def story(_: World, group: list[Host]) -> None:
        await with_brokers(group)
        controller = metadata_of(await controller_of(group))
        huge = msgspec.structs.replace(
            register(1),
            incarnation_id="another",
            rack="x" * CONFIG.max_payload_bytes,
        )

        with pytest.raises(InvalidRequestError, match="too much at once"):
            await controller.decide(huge)
        assert await decided(group, create(1)) == TopicAnswer(b"%016d" % 1)

    play(story)


def queue(number: int, *, topic: str = "", **overrides: str) -> CreateQueue:
    name = f"queue{number}"
    ids = [f"{kind}{number:014d}".encode() for kind in ("q:", "t:")]
    return CreateQueue(
        name, ids[0], bytes(32), ids[1], 0, topic or name, None, [], False, overrides
    )


def test_many_queues_are_created_by_one_entry_each_after_those_before_it() -> None:
    async def story(_: World, group: list[Host]) -> None:
        await with_brokers(group)
        controller = metadata_of(await controller_of(group))
        before = controller.applied_index
        wanted = [
            queue(1, dead_letter_queue="queue2"),
            queue(2),
            queue(3, dead_letter_queue="queue2"),
            msgspec.structs.replace(queue(4), name="queue2", topic="queue2", is_fifo=True),
            msgspec.structs.replace(queue(5), created_at_ms=1 << 64),
        ]

        reply = await controller.decide(CreateQueues(wanted))

        assert isinstance(reply, QueueResults)
        assert [each.answer and each.answer.queue_id for each in reply.results] == [
            *(None, wanted[1].queue_id, wanted[2].queue_id, None, None)
        ]
        errors = [from_wire(each.error) for each in reply.results if each.error is not None]
        assert [type(each) for each in errors] == [
            *(UnknownQueueError, QueueExistsError, InvalidRequestError)
        ]
        assert controller.applied_index == before + 1
        await until(lambda: all(names(host)[:2] == ["queue2", "queue3"] for host in group))
        assert len({metadata_of(host).snapshot() for host in group}) == 1

        again = await controller.decide(CreateQueues(wanted[1:3]))

        assert isinstance(again, QueueResults)
        assert again.results == reply.results[1:3], "the same ids are created once"
        assert controller.applied_index == before + 1

    play(story)


def test_a_follower_names_the_controller() -> None:
    async def story(_: World, group: list[Host]) -> None:
        controller = await controller_of(group)
        await decided(group, register(1))
        other = next(host for host in group if host is not controller)

        with pytest.raises(NotControllerError, match=f"ask node {controller.node_id}"):
            await metadata_of(other).decide(create(1))

    play(story)


def test_a_command_on_an_isolated_leader_has_an_unknown_outcome() -> None:
    async def story(world: World, group: list[Host]) -> None:
        controller = await controller_of(group)
        others = [host for host in group if host is not controller]
        heal = world.network.partition(
            [controller.machine.name], [host.machine.name for host in others]
        )
        with pytest.raises(RequestTimedOutError, match="majority of the voters is missing"):
            await metadata_of(controller).decide(register(1))
        await with_brokers(others)

        heal()

        await until(lambda: len({metadata_of(host).snapshot() for host in group}) == 1)
        assert set(metadata_of(controller).state.brokers) == {1, 2, 3}

    play(story)


def test_a_command_overtaken_by_a_snapshot_has_an_unknown_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(raft_node, "SNAPSHOT_AFTER_BYTES", 1000)
    monkeypatch.setattr(raft_node, "KEPT_ENTRIES", 2)

    async def story(world: World, group: list[Host]) -> None:
        await with_brokers(group)
        old = await controller_of(group)
        others = [host for host in group if host is not old]
        heal = world.network.partition([old.machine.name], [host.machine.name for host in others])
        async with trio.open_nursery() as nursery:

            async def attempt() -> None:
                with pytest.raises(RequestTimedOutError, match="was deposed while this was"):
                    await metadata_of(old).decide(create(0))

            nursery.start_soon(attempt)
            for number in range(1, 40):
                await decided(others, create(number))
            heal()
        await until(lambda: len(names(old)) == 39)

    play(story)


def test_a_deposed_controller_drops_its_uncommitted_state() -> None:
    async def story(world: World, group: list[Host]) -> None:
        await with_brokers(group)
        old = await controller_of(group)
        others = [host for host in group if host is not old]
        heal = world.network.partition([old.machine.name], [host.machine.name for host in others])
        async with trio.open_nursery() as nursery:

            async def attempt() -> None:
                with pytest.raises(NotControllerError):
                    await metadata_of(old).decide(create(1))

            nursery.start_soon(attempt)
            await decided(others, create(2))
            heal()
        await until(lambda: names(old) == ["topic2"])

        assert old.raft is not None
        new = await controller_of(group)
        assert new.raft is not None
        if new is not old:
            new.raft.transfer_leadership(old.node_id)
        await until(lambda: old.raft is not None and old.raft.is_active_leader)

        assert await metadata_of(old).decide(create(1)) == TopicAnswer(b"%016d" % 1)

    play(story)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(create(1, topic_id=b"another topic id"), id="refused"),
        pytest.param(create(1), id="nothing to do"),
    ],
)
def test_a_deposed_controller_does_not_answer_from_stale_state(command: Command) -> None:
    async def story(world: World, group: list[Host]) -> None:
        await with_brokers(group)
        await decided(group, create(1))
        old = await controller_of(group)
        others = [host for host in group if host is not old]
        heal = world.network.partition([old.machine.name], [host.machine.name for host in others])

        with pytest.raises(NotControllerError):
            await metadata_of(old).decide(command)

        heal()

    play(story)


def test_listeners_get_a_delta_for_every_committed_entry_in_order() -> None:
    async def story(_: World, group: list[Host]) -> None:
        heard: list[str] = []

        def listen(delta: BrokerDelta) -> None:
            if delta.has_changed_brokers:
                heard.append("brokers")
            heard.extend(delta.reshaped_topics.values())

        controller = await controller_of(group)
        follower = next(host for host in group if host is not controller)
        metadata_of(follower).subscribe(listen)
        await with_brokers(group)
        await decided(group, create(1))
        await decided(group, DeleteTopic("topic1"))

        await until(lambda: heard.count("topic1") == 2)
        assert heard[0] == "brokers"
        assert heard[-2:] == ["topic1", "topic1"]

    play(story)


def test_a_listener_may_leave_out_entries_of_transactions_alone() -> None:
    async def story(_: World, group: list[Host]) -> None:
        everything: list[BrokerDelta] = []
        others: list[BrokerDelta] = []
        controller = metadata_of(await controller_of(group))
        await with_brokers(group)
        await decided(group, create(1))
        controller.subscribe(everything.append)
        controller.subscribe(others.append, hears_transactions=False)

        await decided(group, BeginTransaction("job", 1, 60_000, [], []))
        assert (len(everything), len(others)) == (1, 0)
        await decided(group, BeginTransaction("job", 2, 60_000, ["topic1"], [bytes(16)]))
        assert (len(everything), len(others)) == (2, 1), "it creates a staging log as well"
        controller.restore(controller.snapshot())
        assert (len(everything), len(others)) == (3, 2)

    play(story)


def test_listeners_get_an_installed_snapshot_as_a_delta() -> None:
    async def story(_: World, group: list[Host]) -> None:
        heard: list[BrokerDelta] = []
        controller = await controller_of(group)
        await with_brokers(group)
        await decided(group, create(1))
        await decided(group, create(2))
        snapshot = metadata_of(controller).snapshot()
        await decided(group, DeleteTopic("topic2"))
        metadata_of(controller).subscribe(heard.append)

        metadata_of(controller).restore(snapshot)

        assert list(heard[0].reshaped_topics.values()) == ["topic2"]

    play(story)


@pytest.mark.parametrize("seed", range(2))
def test_random_faults_lose_and_repeat_no_decision(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_node, "SNAPSHOT_AFTER_BYTES", 4000)
    monkeypatch.setattr(raft_node, "KEPT_ENTRIES", 5)
    monkeypatch.setattr(replicated_state, "COMMIT_TIMEOUT_S", 2.0)

    async def story(world: World, group: list[Host]) -> None:
        random = world.streams.stream("story")
        created: list[str] = []
        taken: list[int] = []

        async def create_topics() -> None:
            for number in range(1000):
                # `decided` may submit twice, for an answer may be lost; the id makes that harmless.
                await decided(group, create(number))
                created.append(f"topic{number}")
                await trio.sleep(0.05)

        async def take_ids() -> None:
            while True:
                reply = await decided(group, TakeProducerIds())
                assert isinstance(reply, ProducerIds)
                taken.append(reply.first)
                await trio.sleep(0.05)

        async with trio.open_nursery() as nursery:
            await with_brokers(group)
            nursery.start_soon(create_topics)
            nursery.start_soon(take_ids)
            await FaultInjector(world, group, random).run(12)
            await trio.sleep(5)
            nursery.cancel_scope.cancel()
        await decided(group, create(5000))
        await until(lambda: len({metadata_of(host).snapshot() for host in group}) == 1)
        assert len(created) > 5
        assert set(created) <= set(names(group[0]))
        assert len(taken) == len(set(taken)) > 5

    play(story, seed=seed)
