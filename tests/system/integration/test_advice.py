"""Advice in errors and logs of brokers, followed: a test does what the text recommends.

Commands that a text recommends run as they stand in the text.
"""

import os
import resource
import shutil
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import trio

import tidelog
from tests.advice import part_of, recommended
from tests.system.integration.nodes import Nodes, free_ports
from tests.system.integration.processes import (
    DEADLINE_S,
    BrokerProcess,
    run_tidelog,
    serving,
)
from tests.system.integration.test_commands import run_at, run_well
from tests.system.integration.test_old_directories import TOPIC, Places, produce, read_all, whole
from tests.system.integration.test_workers import free_ports as consecutive_ports
from tests.system.integration.test_workers import started
from tidelog.wire.messages.reassignment import PartitionMove

COUNT = 100
ANY_PORT = ("--listen", "127.0.0.1:0")


def new_address() -> str:
    """Return an address without a listener."""
    (port,) = free_ports(1)
    return f"127.0.0.1:{port}"


async def refusal(data_dir: Path, *options: str) -> str:
    """Run a broker that must not start; return the error, its last line."""
    result = await run_tidelog("serve", "--data-dir", str(data_dir), *options)
    assert result.returncode == 1
    last = result.stderr.decode().splitlines()[-1]
    assert last.startswith("error: ")
    return last


async def fails(addresses: str, *words: str, status: int = 1) -> str:
    """Run a command that must fail; return the error, its last line."""
    result = await run_at(addresses, *words)
    assert result.returncode == status, result
    return result.stderr.decode().splitlines()[-1]


async def error_of(call: Callable[[], Awaitable[object]]) -> str:
    """Return the error of a request that the cluster must refuse."""
    with pytest.raises(tidelog.TidelogError) as refused:
        await call()
    return str(refused.value)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition of the cluster."""
    while True:
        if await condition():
            return
        await trio.sleep(0.1)


async def stopped(broker: BrokerProcess) -> None:
    """Stop a broker with SIGTERM, and wait for its end."""
    broker.signal(signal.SIGTERM)
    await broker.wait_ended()


async def filled(broker: BrokerProcess) -> Places:
    """Create the topic and append records; return their places."""
    async with tidelog.connect(broker.address) as client:
        await client.admin.create_topic(TOPIC)
        return await produce(client, COUNT)


async def assert_has(address: str, acknowledged: Places) -> None:
    """Check that the topic has exactly these records."""
    async with tidelog.connect(address) as client:
        assert await read_all(client) == acknowledged


async def test_a_missing_broker_is_started_and_one_in_the_way_avoided_or_stopped(
    tmp_path: Path,
) -> None:
    data, other, listen = tmp_path / "data", tmp_path / "other", new_address()
    assert recommended(await fails(listen, "topic", "list")) == ["serve"]
    async with serving(data, listen=listen) as first:
        await run_well(listen, "topic", "list", "--json")
        used = await refusal(data, *ANY_PORT)
        assert used.endswith("; stop it or choose another --data-dir")
        listening = await refusal(other, "--node-id", "4", "--listen", listen)
        assert listening.endswith(" choose another address with --listen")
        async with serving(other, "--node-id", "4"):
            pass
        os.kill(int(part_of(used, r" in use by process (\d+);")), signal.SIGTERM)
        await first.wait_ended()
    async with serving(data, listen=listen):
        pass
    said = await refusal(other, *ANY_PORT)
    async with serving(other, *part_of(said, r"use (--node-id \d+) or").split()):
        pass


def move_contents(source: Path, target: Path) -> None:
    """Move all files and directories of a directory into a new one below it."""
    contents = list(source.iterdir())
    target.mkdir()
    for each in contents:
        each.rename(target / each.name)


async def test_the_data_of_a_single_broker_becomes_that_of_worker_1(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        acknowledged = await filled(broker)
        await stopped(broker)
    listen = f"127.0.0.1:{consecutive_ports(2)}"

    said = await refusal(tmp_path, "--workers", "2", "--listen", listen)
    target = Path(part_of(said, "to use it as worker 1, move its contents to (.+), or "))
    move_contents(tmp_path, target)

    said = await refusal(tmp_path, "--listen", listen)
    async with serving(Path(part_of(said, r"with --data-dir (\S+) alone, or with"))) as broker:
        await assert_has(broker.address, acknowledged)
        await stopped(broker)
    workers = part_of(said, r"or with (--workers \d) among others")
    async with serving(tmp_path, *workers.split(), listen=listen) as running:
        await running.wait_until(lambda: len(started(running)) == 2)
        await assert_has(listen, acknowledged)
        await stopped(running)
    said = await refusal(tmp_path, "--listen", listen)
    assert part_of(said, "start them with (--workers .), or choose another") == workers


async def test_a_wrong_list_of_peers_is_corrected(tmp_path: Path) -> None:
    second, third, fourth = new_address(), new_address(), new_address()
    async with serving(tmp_path / "4", "--node-id", "4"):
        pass
    async with serving(tmp_path / "1") as first:
        there = f"1={first.address}"
        said = await refusal(tmp_path / "2", "--node-id", "2", "--peers", there)
        assert said.startswith("error: peers: node 2 itself is missing; ")
        peers = f"{there},{part_of(said, 'add (2=)HOST:PORT to the list')}{second}"
        async with serving(tmp_path / "2", "--node-id", "2", "--peers", peers, listen=second):
            wrong = ("--node-id", "3", "--listen", third, "--peers")
            said = await refusal(tmp_path / "3", *wrong, f"2={first.address},3={third}")
            number = part_of(said, r"but node (\d) answers there; correct the list")
            right = ("--node-id", "3", "--peers", f"{number}={first.address},3={third}")
            async with serving(tmp_path / "3", *right, listen=third):
                options = ("--node-id", "4", "--peers", f"{there},4={fourth}")
                said = await refusal(tmp_path / "4", *options, "--listen", fourth)
                cluster_id = first.event("broker_started")["cluster_id"]
                assert f"node 1 belongs to cluster {cluster_id}, not to " in said
                assert said.endswith(
                    "one cluster with --peers, or give this node an empty --data-dir"
                )
                async with serving(tmp_path / "empty", *options, listen=fourth):
                    assert await node_ids(first.address) == [1, 2, 3, 4]


async def test_new_nodes_with_different_lists_are_started_with_the_same(tmp_path: Path) -> None:
    first, second = new_address(), new_address()
    peers = f"1={first},2={second}"
    options = {number: ("--node-id", str(number), "--peers", peers) for number in (1, 2)}
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            longer = ("--node-id", "2", "--peers", f"{peers},3={new_address()}")
            nursery.start_soon(partial(refusal, tmp_path / "2", *longer, "--listen", second))
            said = await refusal(tmp_path / "1", *options[1], "--listen", first)
            nursery.cancel_scope.cancel()
        assert said.endswith("; start all of them with the same")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(run_node, tmp_path / "2", *options[2], listen=second))
            async with serving(tmp_path / "1", *options[1], listen=first):

                async def both() -> bool:
                    return await node_ids(first) == [1, 2]

                await until(both)
            nursery.cancel_scope.cancel()


async def run_node(data_dir: Path, *options: str, listen: str) -> None:
    """Run a broker until cancelled."""
    async with serving(data_dir, *options, listen=listen):
        await trio.sleep_forever()


async def node_ids(address: str) -> list[int]:
    """Return the node ids of a cluster."""
    async with tidelog.connect(address) as client:
        return [each.node_id for each in (await client.admin.describe_cluster()).nodes]


async def reason_without_leader(client: tidelog.Client, topic: str, number: int) -> str:
    """Wait until a partition has no leader; return the reason."""
    while True:
        (described,) = await client.admin.describe_topics([topic])
        if described.partitions[number].leaderless_reason:
            return described.partitions[number].leaderless_reason
        await trio.sleep(0.1)


async def test_lost_files_are_brought_back(tmp_path: Path) -> None:
    data, lost = tmp_path / "data", tmp_path / "lost"
    async with serving(data) as broker:
        acknowledged = await filled(broker)
        await stopped(broker)
    (directory,) = (data / "topics").glob(f"{TOPIC}.*")
    directory.rename(lost)

    async with serving(data) as broker:
        async with tidelog.connect(broker.address) as client:
            said = await reason_without_leader(client, TOPIC, 0)
        assert "stop this broker, bring the files back and start this broker; then" in said
        await stopped(broker)
    shutil.rmtree(directory, ignore_errors=True)
    lost.rename(directory)

    async with serving(data) as broker:
        command = recommended(said)
        confirmation = part_of(await fails(broker.address, *command, status=2), r"; add (--\w+)$")
        await run_well(broker.address, *command, confirmation)
        await assert_has(broker.address, acknowledged)


async def test_an_offline_log_serves_again_after_a_restart_of_its_broker(tmp_path: Path) -> None:
    value = os.urandom(100_000)
    async with serving(tmp_path, limits="-f 2048") as broker:  # Larger files are disk errors.
        acknowledged = await filled(broker)
        async with tidelog.connect(broker.address) as client, client.producer() as producer:

            async def fill() -> None:
                while True:
                    receipt = await producer.send(TOPIC, value)
                    assert receipt.offset is not None
                    acknowledged[receipt.partition, receipt.offset] = value

            said = await error_of(fill)
        assert said.endswith("; restart the broker once the disk works again")
        await stopped(broker)

    async with serving(tmp_path) as broker:
        await assert_has(broker.address, acknowledged)


def open_files(pid: int) -> list[Path]:
    """Return the descriptors of a process."""
    return list(Path(f"/proc/{pid}/fd").iterdir())


async def test_a_higher_limit_of_open_files_opens_a_topic(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        async with tidelog.connect(broker.address, request_timeout=2) as client:
            await client.admin.list_topics()
            # No more than are open now: a broker that starts with few leaves some for files.
            count = len(open_files(broker.pid))
            resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (count, count))
            said = await error_of(partial(client.admin.create_topic, TOPIC, 200))
        option = part_of(said, r"; raise the broker's limit of open files \(ulimit (-n)\)$")
        await stopped(broker)

    higher = f"{option} 5000"
    async with (
        serving(tmp_path, limits=higher) as broker,
        tidelog.connect(broker.address) as client,
    ):
        topics = await client.admin.describe_topics(await client.admin.list_topics())
    assert {each.status for topic in topics for each in topic.partitions} == {"online"}


async def lost_metadata(nodes: Nodes, client: tidelog.Client, tmp_path: Path) -> None:
    """Lose the metadata of node 2, and follow the error of its next start."""
    await nodes.stop_and_wait(2)
    shutil.rmtree(tmp_path / "2" / "metadata")
    said = await refusal(tmp_path / "2", "--node-id", "2", "--listen", nodes.address(2))
    assert "; if other nodes belong to the cluster, name them with --peers; else" in said
    await nodes.start(2)
    await whole(client)


async def used_node_id(nodes: Nodes, client: tidelog.Client, tmp_path: Path) -> None:
    """Start a second node 3, and follow its error and that of the removal of its node."""
    listen = new_address()
    peers = ",".join(f"{number}={nodes.address(number)}" for number in (1, 2))
    wrong = ("--node-id", "3", "--listen", listen, "--peers", f"{peers},3={listen}")
    said = await refusal(tmp_path / "new", *wrong)
    assert f"node id 3 belongs to a live broker at {nodes.address(3)}" in said
    assert said.endswith("; choose an unused node id, or stop that broker")
    right = ("--node-id", "4", "--peers", f"{peers},4={listen}")
    async with serving(tmp_path / "4", *right, listen=listen) as fourth:
        unregister = partial(client.admin.unregister_broker, 4)
        assert (await error_of(unregister)).endswith("; stop it first")
        await stopped(fourth)
    while "4" in {str(each.node_id) for each in (await client.admin.describe_cluster()).nodes}:
        try:
            await unregister()
        except tidelog.TidelogError as error:
            assert str(error).endswith("; try again when its session has ended")  # noqa: PT017
            await trio.sleep(0.1)


async def leaderless_partition(nodes: Nodes, client: tidelog.Client) -> None:
    """Kill the broker of the only replica, and follow the reason of the missing leader."""
    await client.admin.create_topic("single", 3, replication_factor=1)
    led: list[int] = []

    async def is_led() -> bool:
        # A broker may describe a leader that has just restarted as unknown.
        (topic,) = await client.admin.describe_topics(["single"])
        led.extend(each.partition for each in topic.partitions if each.leader_id == 2)
        return bool(led)

    await until(is_led)
    number = led[0]
    await nodes.kill_and_wait(2)

    said = await reason_without_leader(client, "single", number)
    await nodes.start(int(part_of(said, r"; start broker (\d)$")))

    async def has_leader() -> bool:
        (found,) = await client.admin.describe_topics(["single"])
        return found.partitions[number].leader_id == 2

    await until(has_leader)
    await client.admin.delete_topic("single")


async def replica_count(client: tidelog.Client, node_id: int) -> int:
    """Return the count of replicas of a node."""
    nodes = (await client.admin.describe_cluster()).nodes
    return sum(each.replica_count for each in nodes if each.node_id == node_id)


async def drained_broker(nodes: Nodes, client: tidelog.Client) -> None:
    """Replace a live broker, and follow the errors until it has replicas again."""

    async def is_empty() -> bool:
        return not await replica_count(client, 3)

    async def has_replicas() -> bool:
        return bool(await replica_count(client, 3))

    said = await error_of(partial(client.admin.replace_broker, 3, 1))
    await run_well(nodes.addresses, *recommended(said))
    await until(is_empty)
    move = partial(client.admin.reassign, [PartitionMove(TOPIC, 0, [3, 1])])
    (moved,) = await move()
    assert moved.error is not None

    printed = await run_well(nodes.addresses, *recommended(moved.error.message))

    await run_well(nodes.addresses, *recommended(printed))
    await until(has_replicas)
    (moved,) = await move()
    assert moved.error is None


async def stuck_move(nodes: Nodes, client: tidelog.Client) -> None:
    """Kill node 3 during a move of partition 0 to it."""

    async def nothing_moves() -> bool:
        return not await client.admin.list_reassignments()

    async def is_moved() -> bool:
        # The broker that lists reassignments may not know of this one yet.
        (found,) = await client.admin.describe_topics([TOPIC])
        return found.partitions[0].replicas == [1, 2]

    await until(nothing_moves)
    await client.admin.reassign([PartitionMove(TOPIC, 0, [1, 2])])
    await until(is_moved)
    await whole(client)
    nodes.stop(3)
    (moved,) = await client.admin.reassign([PartitionMove(TOPIC, 0, [3, 1])])
    assert moved.is_under_way
    await nodes.kill_and_wait(3)


async def lost_broker(nodes: Nodes, client: tidelog.Client) -> None:
    """Unregister a lost broker that has replicas, and follow the errors."""
    await stuck_move(nodes, client)
    drain: list[str] = []
    while await node_ids(nodes.addresses) != [1, 2]:
        try:
            await client.admin.unregister_broker(3)
        except tidelog.TidelogError as error:
            if not drain and " still has " in str(error):
                drain = recommended(str(error))
                values = {"T": TOPIC, "P": "0"}
                cancel = recommended(await fails(nodes.addresses, *drain))
                await run_well(nodes.addresses, *(values.get(word, word) for word in cancel))
                await run_well(nodes.addresses, *drain)
            await trio.sleep(0.1)
    assert drain


async def test_a_cluster_is_administered_as_its_errors_recommend(tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nodes = Nodes(tmp_path, nursery)
            await nodes.start(1, 2, 3)
            async with tidelog.connect(nodes.addresses) as client:
                await client.admin.create_topic(TOPIC, 3, replication_factor=2)
                await whole(client)
                await lost_metadata(nodes, client, tmp_path)
                await used_node_id(nodes, client, tmp_path)
                await leaderless_partition(nodes, client)
                await drained_broker(nodes, client)
                await lost_broker(nodes, client)
            nursery.cancel_scope.cancel()
