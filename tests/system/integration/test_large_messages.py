"""Tests of large messages in real processes: clients need memory for a few chunks only."""

import sys
from pathlib import Path

import trio

import tidelog
from tests.paths import ROOT
from tests.system.integration.peak_memory import peak_memory_mib
from tests.system.integration.processes import environment, serving

MIB = 200
FEW_MIB = 40
"""Maximum growth of a process in MiB; about 6 to send and 17 to receive when this was written."""


async def growth(what: str, address: str) -> float:
    """Return the growth of a process that sends or receives the message, in MiB."""
    command = [
        sys.executable,
        "-m",
        "tests.system.integration.large_client",
        what,
        str(MIB),
        address,
    ]
    result = await trio.run_process(command, capture_stdout=True, cwd=ROOT, env=environment())
    return float(result.stdout)


async def test_a_client_of_a_large_message_needs_memory_for_a_few_chunks(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        async with tidelog.connect(broker.address) as client:
            await client.admin.create_queue("large", partitions=1)
        before = peak_memory_mib(broker.pid)

        assert await growth("send", broker.address) < FEW_MIB
        assert await growth("chunks", broker.address) < FEW_MIB
        assert await growth("join", broker.address) < MIB + FEW_MIB
        assert await growth("worker", broker.address) < FEW_MIB
        assert peak_memory_mib(broker.pid) - before < FEW_MIB
