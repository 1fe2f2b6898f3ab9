"""Output to pipes, files and memory."""

import io
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import pytest
import trio
import trio.testing

from tidelog.cli.output_pipe import OutputPipe


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Return both ends of a pipe."""
    reading, writing = os.pipe()
    with ExitStack() as opened:
        yield (
            opened.enter_context(os.fdopen(reading, "rb", buffering=0)),
            opened.enter_context(os.fdopen(writing, "wb", buffering=0)),
        )


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 1_000_000])
@pytest.mark.parametrize("is_blocking", [True, False])
async def test_a_pipe_gets_every_byte(
    pipe: tuple[BinaryIO, BinaryIO], size: int, is_blocking: bool
) -> None:
    reading, writing = pipe
    os.set_blocking(writing.fileno(), is_blocking)  # Other programs may share it, and do so.
    content = os.urandom(size)
    found = bytearray()

    async def read() -> None:
        while len(found) < size:
            found.extend(await trio.to_thread.run_sync(reading.read, 1 << 20))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await OutputPipe(writing).write(content)

    assert bytes(found) == content


async def test_a_reader_that_does_not_read_stops_no_other_task(
    pipe: tuple[BinaryIO, BinaryIO],
) -> None:
    _, writing = pipe
    output = OutputPipe(writing)

    for size in (1_000_000, 10):  # The second write finds the pipe full.
        with trio.move_on_after(0.05) as scope:
            await output.write(b"x" * size)
        assert scope.cancelled_caught


async def test_a_closed_pipe_is_an_error(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reading, writing = pipe
    reading.close()

    for size in (1, 1_000_000):
        with pytest.raises(BrokenPipeError):
            await OutputPipe(writing).write(b"x" * size)


async def test_files_and_memory_are_written_at_once(tmp_path: Path) -> None:
    memory = io.BytesIO()
    await OutputPipe(memory).write(b"abc")
    with (tmp_path / "file").open("wb") as file:
        await OutputPipe(file).write(b"abc")
        assert (tmp_path / "file").read_bytes() == b"abc"

    assert memory.getvalue() == b"abc"


async def test_a_closed_pipe_ends_the_wait_for_content(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reading, writing = pipe
    output = OutputPipe(writing)
    with trio.move_on_after(0.05) as scope:
        await output.raise_when_closed()
    assert scope.cancelled_caught

    async def close() -> None:
        await trio.testing.wait_all_tasks_blocked()
        reading.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(close)
        with pytest.raises(BrokenPipeError):
            await output.raise_when_closed()
