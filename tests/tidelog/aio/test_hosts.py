"""Hosts of programs of asyncio: pytest-asyncio, anyio, and notebooks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.tidelog.aio.programs import Start

SUITE_OF_PYTEST_ASYNCIO = """
import asyncio

import pytest
import pytest_asyncio

from tidelog import aio


@pytest_asyncio.fixture(scope=SCOPE, loop_scope=SCOPE)
async def client():
    async with aio.connect(ADDRESS) as client:
        yield client


@pytest.mark.asyncio(loop_scope=SCOPE)
@pytest.mark.parametrize("number", range(3))
async def test_records(client, number):
    topic = f"{SCOPE}-{number}"
    await client.admin.create_topic(topic)
    async with client.producer() as producer:
        receipts = await asyncio.gather(*(producer.send(topic, b"v") for _ in range(9)))
    assert sorted(receipt.offset for receipt in receipts) == list(range(9))
    async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        ends = await consumer.end_offsets()
        assert len([record async for record in consumer.records(ends)]) == 9


@pytest.mark.asyncio(loop_scope=SCOPE)
async def test_a_second_client(client):
    second = await aio.connect(ADDRESS)
    await client.admin.create_queue(SCOPE)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await second.queue(SCOPE).receive(wait=20)
    await second.close()
"""

SUITE_OF_ANYIO = """
import anyio
import pytest

from tidelog import aio

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop")])
def anyio_backend(request):
    return request.param


@pytest.fixture
async def client():
    async with aio.connect(ADDRESS) as client:
        yield client


async def test_cancel_scopes_cancel_calls(client, anyio_backend):
    name = f"anyio-{'uvloop' if isinstance(anyio_backend, tuple) else 'asyncio'}"
    await client.admin.create_queue(name)
    queue = client.queue(name)
    with anyio.move_on_after(0.05) as scope:
        await queue.receive(wait=20)
    assert scope.cancelled_caught

    async def handle(message):
        await anyio.sleep(0)
        worker.stop()

    await queue.send(b"v")
    worker = queue.worker(handle)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
    assert worker.statistics.done_count == 1


async def test_a_block_is_left_in_a_cancelled_scope(client):
    with anyio.CancelScope() as scope:
        async with client.producer():
            scope.cancel()
            await anyio.sleep(1)
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with aio.connect(ADDRESS):
            pass
    await client.admin.list_topics()
"""


PYTEST_ASYNCIO_OPTIONS = ["-oasyncio_default_fixture_loop_scope=function"]


@pytest.mark.parametrize(
    ("suite", "options"),
    [
        (f"SCOPE = 'function'\n{SUITE_OF_PYTEST_ASYNCIO}", PYTEST_ASYNCIO_OPTIONS),
        (f"SCOPE = 'session'\n{SUITE_OF_PYTEST_ASYNCIO}", PYTEST_ASYNCIO_OPTIONS),
        (SUITE_OF_ANYIO, ["-p", "no:asyncio"]),
    ],
    ids=["pytest-asyncio", "pytest-asyncio-session", "anyio"],
)
def test_a_suite_of_a_user_passes(
    tmp_path: Path, address: str, suite: str, options: list[str]
) -> None:
    (tmp_path / "test_suite.py").write_text(f"ADDRESS = {address!r}\n{suite}")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:trio", "-p", "no:randomly", "-n0"]
    done = subprocess.run(
        [*command, *options, str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "4 passed" in done.stdout, done.stdout
    assert done.returncode == 0


def test_a_client_of_a_notebook_survives_an_interrupted_cell(address: str, start: Start) -> None:
    code = """
import nbclient, nbformat

cells = [
    "from tidelog import aio as tidelog; import asyncio, time",
    f"client = await tidelog.connect({sys.argv[1]!r}); await client.admin.create_queue('notes')",
    "print('waits', flush=True); await client.queue('notes').receive(wait=20)",
    "queue = client.queue('notes'); await queue.send(b'v'); print(await queue.receive(wait=20))",
    "print('blocks', flush=True); time.sleep(20)",
    "print(await client.admin.list_queues())",
]
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
client = nbclient.NotebookClient(notebook, allow_errors=True)

async def run(index):
    return await client.async_execute_cell(notebook.cells[index], index)

async def interrupt(index):
    running = asyncio.create_task(run(index))
    while not notebook.cells[index].outputs:
        await asyncio.sleep(0.01)
    await client.km.interrupt_kernel()
    cell = await running
    print(cell.outputs[-1].ename)

async def main():
    async with client.async_setup_kernel(cwd="."):
        await run(0)
        await run(1)
        await interrupt(2)
        print((await run(3)).outputs[0].text.strip())
        await interrupt(4)
        print((await run(5)).outputs[0].text.strip())
    print("shut down")

asyncio.run(main())
"""
    ended = start(code, address).ended()

    assert ended.status == 0, ended.errors
    first, value, second, queues, last = ended.lines
    assert first in {"CancelledError", "KeyboardInterrupt"}
    assert (second, last) == ("KeyboardInterrupt", "shut down")
    assert "Message" in value
    assert "notes" in queues
