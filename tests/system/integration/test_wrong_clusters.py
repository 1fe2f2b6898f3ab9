"""Tests of nodes with inconsistent settings: one line of error, and exit status 1."""

import shutil
from pathlib import Path

from tests.system.integration.processes import only_line, run_tidelog, serving
from tests.system.integration.test_workers import free_ports


async def refusal(data_dir: Path, node_id: int, peers: str) -> str:
    """Start a node that must fail, and return its last line."""
    result = await run_tidelog(
        "serve", "--data-dir", str(data_dir), "--node-id", str(node_id),
        "--listen", "127.0.0.1:0", "--peers", peers, "--log-level", "error",
    )  # fmt: skip
    assert result.returncode == 1
    last = result.stderr.decode().splitlines()[-1]
    assert last.startswith("error: ")
    return last


async def test_inconsistent_peers_ids_and_disks_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path / "1") as first:
        there = f"1={first.address}"
        second = "127.0.0.1:9"  # An address without a listener or a request.

        said = await refusal(tmp_path / "new", 2, there)
        assert said == "error: peers: node 2 itself is missing; add 2=HOST:PORT to the list"

        said = await refusal(tmp_path / "new", 2, f"2={second},3={first.address}")
        assert f"node 3 is at {first.address}, but node 1 answers there" in said

        async with serving(tmp_path / "other", "--node-id", "2"):
            pass
        said = await refusal(tmp_path / "other", 2, f"{there},2={second}")
        cluster_id = first.event("broker_started")["cluster_id"]
        assert f"node 1 belongs to cluster {cluster_id}, not to " in said

        said = await refusal(tmp_path / "other", 3, f"{there},3={second}")
        assert "belongs to node 2, this is node 3; use --node-id 2" in said

        result = await run_tidelog(
            "topic", "create", "orders", "--replication-factor", "2", TIDELOG_BROKER=first.address
        )
        assert result.returncode == 1
        assert "2 replicas are not possible" in only_line(result)


async def test_a_second_node_with_the_id_of_a_live_one_is_refused(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)}"
    async with serving(tmp_path / "1") as first:
        peers = f"1={first.address},2={address}"
        options = ["--node-id", "2", "--peers", peers]
        async with serving(tmp_path / "2", *options, listen=address):
            said = await refusal(tmp_path / "3", 2, peers)

    assert f"node id 2 belongs to a live broker at {address}" in said


async def test_a_copied_data_directory_is_refused_for_another_node(tmp_path: Path) -> None:
    async with serving(tmp_path / "1") as first:
        shutil.copytree(tmp_path / "1", tmp_path / "2", ignore=shutil.ignore_patterns("lock"))

        said = await refusal(tmp_path / "2", 2, f"1={first.address},2=127.0.0.1:9")

    assert "belongs to node 1, this is node 2" in said
