"""The examples run as they are, and say what they should."""

import os
import subprocess
import sys

import trio

from tests.integration.processes import DEADLINE_S, ROOT, environment


async def run_example(name: str, *arguments: str) -> str:
    """Run an example that must succeed in silence; return what it prints."""
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with trio.fail_after(DEADLINE_S):
        result: subprocess.CompletedProcess[bytes] = await trio.run_process(
            [sys.executable, str(ROOT / "examples" / name), *arguments],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=environment(PYTHONPATH=paths),
        )
    assert (result.returncode, result.stderr) == (0, b""), result.stderr.decode()
    return result.stdout.decode()


async def test_a_program_with_trio_produces_and_consumes(broker_address: str) -> None:
    first = await run_example("produce_and_consume.py", broker_address)
    again = await run_example("produce_and_consume.py", broker_address)

    assert first.endswith("read 1001 records\n")
    assert again.startswith("topic example-orders is there already\n")
    assert again.endswith("read 2002 records\n")


async def test_a_program_without_trio_produces_and_consumes(broker_address: str) -> None:
    said = await run_example("blocking_client.py", broker_address)

    assert said == "1000 records are on disk\nread 1000 records\n"


async def test_a_program_runs_a_broker_of_its_own() -> None:
    said = await run_example("embedded_broker.py")

    assert said.endswith("0 b'started' {'source': b'example'}\n")


async def test_an_afternoon_is_replayed_by_time() -> None:
    said = await run_example("replay_by_time.py")

    assert "278 flights from 17:00 to 22:00 UTC" in said
