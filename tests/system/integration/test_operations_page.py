"""Tests of the commands in `docs/operations.md`, with real processes on free ports."""

import re
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

import trio

import tidelog
from tests.paths import ROOT
from tests.system.integration.processes import BrokerProcess, only_line, run_tidelog, serving
from tests.system.integration.test_workers import free_ports
from tidelog import ClusterDescription

PAGE: Final = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
FIRST_PORT: Final = 8433


def commands_of(heading: str) -> list[str]:
    """Return the tidelog commands in the code blocks of a section."""
    flags = re.MULTILINE | re.DOTALL
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, flags)
    assert found is not None, f"there is no section {heading!r}"
    blocks = re.findall(r"^```\n(.*?)^```", found[1], flags)
    return [line for block in blocks for line in block.splitlines() if "tidelog " in line]


@final
class Terminals:
    """Running nodes, each in a simulated terminal."""

    def __init__(self, directory: Path, nursery: trio.Nursery) -> None:
        self._directory = directory
        self._nursery = nursery
        self._first_port = free_ports(4)
        ports = range(self._first_port, self._first_port + 3)
        self._addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.nodes: dict[int, BrokerProcess] = {}

    def _here(self, command: str) -> list[str]:
        """Return the words of a command, with free ports."""
        moved = re.sub(
            r"(?<=127\.0\.0\.1:)\d+",
            lambda port: str(int(port[0]) - FIRST_PORT + self._first_port),
            command,
        )
        return shlex.split(moved)

    async def serve(self, *commands: str) -> None:
        """Start nodes, all at once; return when all of them serve clients."""
        async with trio.open_nursery() as starting:
            for command in commands:
                starting.start_soon(self._nursery.start, self._run, command)

    async def _run(
        self, command: str, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        words = self._here(command)
        assert words[:2] == ["tidelog", "serve"]
        flags = dict(zip(words[2::2], words[3::2], strict=True))
        data_dir = self._directory / flags.pop("--data-dir")
        listen = flags.pop("--listen")
        rest = [word for flag in flags.items() for word in flag]
        async with serving(data_dir, *rest, listen=listen) as node:
            self.nodes[int(flags["--node-id"])] = node
            task_status.started()
            await trio.sleep_forever()

    async def tell(self, command: str) -> str:
        """Run a command with standard input from `seq 1000`; return its output."""
        result = await self._run_command(command)
        assert result.returncode == 0, result.stderr
        return result.stdout.decode()

    async def refusal(self, command: str) -> str:
        """Run a command that fails; return its one line of error."""
        result = await self._run_command(command)
        assert result.returncode == 1, result.stdout
        return only_line(result)

    async def _run_command(self, command: str) -> subprocess.CompletedProcess[bytes]:
        words = shlex.split(command.rpartition("| ")[2])
        return await run_tidelog(
            *words[1:],
            stdin="".join(f"{number}\n" for number in range(1, 1001)).encode(),
            TIDELOG_BROKER=self._addresses,
        )

    async def wait_until(self, holds: Callable[[ClusterDescription], bool]) -> None:
        """Wait until a client sees the cluster in the expected state."""
        async with tidelog.connect(self._addresses) as client:
            while not holds(await client.admin.describe_cluster()):  # noqa: ASYNC110
                await trio.sleep(0.2)

    async def end(self, node_id: int, number: signal.Signals) -> None:
        """Send a node a signal, and wait for its end."""
        self.nodes[node_id].signal(number)
        await self.nodes[node_id].wait_ended()


def is_whole(cluster: ClusterDescription) -> bool:
    """Return whether three nodes vote, run, and have all of their replicas."""
    nodes = [(node.role, node.status) for node in cluster.nodes]
    return nodes == [("voter", "alive")] * 3 and not cluster.under_replicated_count


async def test_the_commands_of_the_operations_page_work(tmp_path: Path) -> None:
    *starts, status, create, produce, describe = commands_of("Three nodes in three terminals")
    troubled, consume = commands_of("Kill one, start it again")
    async with trio.open_nursery() as nursery:
        terminals = Terminals(tmp_path, nursery)
        await terminals.serve(*starts)

        assert "voters      3, majority 2" in await terminals.tell(status)
        assert "with 6 partitions" in await terminals.tell(create)
        await terminals.tell(produce)
        assert "1,2,3" in await terminals.tell(describe)

        await terminals.end(1, signal.SIGKILL)
        await terminals.wait_until(lambda cluster: cluster.nodes[0].status == "fenced")
        assert "6 with replicas out of sync" in await terminals.tell(troubled)
        assert len((await terminals.tell(consume)).splitlines()) == 1000

        await terminals.serve(starts[0])
        await terminals.wait_until(is_whole)
        nursery.cancel_scope.cancel()


async def test_too_few_in_sync_replicas_are_reported_in_one_line(tmp_path: Path) -> None:
    *starts, _, _, _, _ = commands_of("Three nodes in three terminals")
    async with trio.open_nursery() as nursery:
        terminals = Terminals(tmp_path, nursery)
        await terminals.serve(*starts)
        await terminals.tell("tidelog topic create strict --config min_insync_replicas=3")
        await terminals.end(1, signal.SIGKILL)
        await terminals.wait_until(lambda cluster: cluster.nodes[0].status == "fenced")

        said = await terminals.refusal("tidelog produce strict --delivery-timeout 1")

        assert "are not in the log" in said
        assert "2 of 3 replicas are in sync, and 3 must be (min_insync_replicas)" in said
        assert said.endswith("; 0 of 1,000 records were acknowledged")
        nursery.cancel_scope.cancel()


async def test_a_node_is_replaced_by_one_with_an_empty_directory(tmp_path: Path) -> None:
    *starts, _, _, _, _ = commands_of("Three nodes in three terminals")
    (replace,) = commands_of("Replace a node")
    async with trio.open_nursery() as nursery:
        terminals = Terminals(tmp_path, nursery)
        await terminals.serve(*starts)
        await terminals.tell("tidelog topic create orders")
        await terminals.wait_until(is_whole)

        await terminals.end(3, signal.SIGTERM)
        (tmp_path / "node-3").rename(tmp_path / "node-3.old")
        await terminals.serve(replace)

        await terminals.wait_until(is_whole)
        nursery.cancel_scope.cancel()


async def test_a_node_is_drained_and_unregistered_and_another_one_votes_in_its_place(
    tmp_path: Path,
) -> None:
    *starts, _, _, _, _ = commands_of("Three nodes in three terminals")
    limit, status, lift = commands_of("Move replicas")
    fourth, drain, unregister = commands_of("Take a node out")
    async with trio.open_nursery() as nursery:
        terminals = Terminals(tmp_path, nursery)
        await terminals.serve(*starts)
        await terminals.tell("tidelog topic create orders --partitions 6")
        await terminals.tell("tidelog produce orders")
        assert "20MB" in await terminals.tell(limit)
        await terminals.tell(status)
        await terminals.tell(lift)

        await terminals.serve(fourth)
        await terminals.wait_until(lambda cluster: len(cluster.nodes) == 4)
        assert "orders" in await terminals.tell(drain)
        await terminals.wait_until(lambda cluster: cluster.nodes[2].replica_count == 0)
        await terminals.end(3, signal.SIGTERM)
        await terminals.wait_until(lambda cluster: cluster.nodes[2].status == "fenced")
        await terminals.tell(unregister)

        await terminals.wait_until(
            lambda cluster: (
                [node.node_id for node in cluster.nodes] == [1, 2, 4] and is_whole(cluster)
            )
        )
        read = await terminals.tell("tidelog consume orders --from-beginning --until-end")
        assert len(read.splitlines()) == 1000
        nursery.cancel_scope.cancel()


async def test_a_lost_node_is_replaced_by_another_one(tmp_path: Path) -> None:
    *starts, _, _, _, _ = commands_of("Three nodes in three terminals")
    fourth, _, _ = commands_of("Take a node out")
    replace, unregister = commands_of("Replace a node that does not come back")
    async with trio.open_nursery() as nursery:
        terminals = Terminals(tmp_path, nursery)
        await terminals.serve(*starts)
        await terminals.tell("tidelog topic create orders --partitions 6")
        await terminals.tell("tidelog produce orders")
        await terminals.serve(fourth)
        await terminals.end(3, signal.SIGKILL)
        await terminals.wait_until(
            lambda cluster: [node.status for node in cluster.nodes[2:]] == ["fenced", "alive"]
        )

        await terminals.tell(replace)
        await terminals.tell(unregister)

        await terminals.wait_until(
            lambda cluster: (
                [node.node_id for node in cluster.nodes] == [1, 2, 4] and is_whole(cluster)
            )
        )
        read = await terminals.tell("tidelog consume orders --from-beginning --until-end")
        assert len(read.splitlines()) == 1000
        nursery.cancel_scope.cancel()


async def test_a_cluster_grows_from_one_to_three_with_data_in_it(tmp_path: Path) -> None:
    first, second, third = commands_of("Grow from one to three to five")
    async with trio.open_nursery() as nursery:
        terminals = Terminals(tmp_path, nursery)
        await terminals.serve(first)
        await terminals.tell("tidelog topic create orders")
        await terminals.tell("tidelog produce orders")

        await terminals.serve(second)
        await terminals.wait_until(
            lambda cluster: [node.role for node in cluster.nodes] == ["voter", "learner"]
        )
        await terminals.serve(third)

        await terminals.wait_until(is_whole)
        read = await terminals.tell("tidelog consume orders --from-beginning --until-end")
        assert len(read.splitlines()) == 1000
        nursery.cancel_scope.cancel()
