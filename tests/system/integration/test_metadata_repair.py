"""A broker with metadata that it cannot apply says so, and is repaired as its error says."""

import re
import shlex
import signal
from pathlib import Path

import msgspec
import trio

import tidelog
from tests.system.integration.nodes import Nodes
from tests.system.integration.processes import DEADLINE_S, only_line, run_tidelog, serving
from tidelog.coordinator.bootstrap.open_node import METADATA_DIRECTORY, METADATA_SET_ASIDE
from tidelog.coordinator.metadata.records import BrokerUnregistered
from tidelog.coordinator.raft.messages import Entry, EntryKind
from tidelog.coordinator.raft_node.storage import open_raft_storage
from tidelog.logstore.disk.os_disk import OsDisk
from tidelog.logstore.segments.file_cache import FileCache


def append_wrong_entry(data_dir: Path) -> int:
    """Append an entry about an unknown broker to the metadata; return its index."""
    storage, stored, _ = open_raft_storage(
        METADATA_DIRECTORY, FileCache(OsDisk(str(data_dir))), now_ms=1
    )
    index = storage.last_index + 1
    payload = msgspec.msgpack.encode([BrokerUnregistered(99)])
    term = stored.vote.hard_state.term
    storage.append([Entry(index, term, EntryKind.COMMAND, payload)], now_ms=1)
    storage.close()
    return index


async def topics(address: str) -> list[str]:
    async with tidelog.connect(address) as client:
        return sorted(await client.admin.list_topics())


async def create(address: str, name: str) -> None:
    async with tidelog.connect(address) as client:
        await client.admin.create_topic(name, 1)


def recommended(said: str) -> list[str]:
    """Return the arguments of the command in an error."""
    program, *arguments = shlex.split(said.split("`")[1])
    assert program == "tidelog"
    return arguments


async def test_the_only_voter_loses_the_entries_from_the_wrong_one_on(tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S):
        async with serving(tmp_path) as broker:
            await create(broker.address, "orders")
            broker.signal(signal.SIGTERM)
            await broker.wait_ended()
        index = append_wrong_entry(tmp_path)

        refused = await run_tidelog("serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
        assert refused.returncode == 1
        said = refused.stderr.decode().splitlines()[-1]
        assert f"entry {index} of the metadata does not fit the state before it" in said

        shown = await run_tidelog(*recommended(said))
        assert shown.returncode == 1
        assert f"entry {index} cannot be applied: KeyError: 99" in shown.stdout.decode()
        cut = await run_tidelog(*recommended(said), "--cut")
        assert re.fullmatch(r"removed \d entr(y|ies) of the metadata\n", cut.stdout.decode())
        again = await run_tidelog(*recommended(said))
        assert (again.returncode, again.stdout.decode().splitlines()[1:]) == (
            0,
            ["all of them can be applied"],
        )
        async with serving(tmp_path) as broker:
            assert await topics(broker.address) == ["orders"]


async def test_a_voter_among_others_gets_its_metadata_from_them(tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nodes = Nodes(tmp_path, nursery)
            await nodes.start(*nodes.ids)
            await create(nodes.addresses, "orders")
            await nodes.stop_and_wait(3)
            append_wrong_entry(tmp_path / "3")
            repair = ("log", "repair-metadata", str(tmp_path / "3"))

            shown = await run_tidelog(*repair)
            cut = await run_tidelog(*repair, "--cut")
            aside = await run_tidelog(*repair, "--set-aside")
            await nodes.start(3)

            assert "from nodes 1, 2" in shown.stdout.decode()
            assert "other voters may hold the same entries" in only_line(cut)
            assert aside.returncode == 0
            assert (tmp_path / "3" / METADATA_SET_ASIDE).is_dir()
            assert await topics(nodes.address(3)) == ["orders"]
            nursery.cancel_scope.cancel()
