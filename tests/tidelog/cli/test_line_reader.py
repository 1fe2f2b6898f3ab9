"""Lines of a file or pipe."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from tidelog.cli.errors import CommandError
from tidelog.cli.line_reader import LINE_BYTES_MAX, LineReader, WholeReader


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Return both ends of a pipe."""
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


async def read_all(descriptor: int) -> list[list[bytes]]:
    reader = LineReader(descriptor)
    found: list[list[bytes]] = []
    while lines := await reader.next_lines():
        found.append(lines)
    return found


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\nb", [b"a", b"b"]),
        (b"\n\n", [b"", b""]),
        (b"a\r\n\xff\n", [b"a\r", b"\xff"]),
    ],
)
async def test_a_file_is_cut_at_its_line_ends(
    tmp_path: Path, content: bytes, lines: list[bytes]
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(content)
    descriptor = os.open(file, os.O_RDONLY)

    found = await read_all(descriptor)

    os.close(descriptor)
    assert [line for group in found for line in group] == lines


async def test_a_line_that_comes_in_pieces_is_put_together(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    reader = LineReader(reading)
    os.write(writing, b"first\nsec")
    first = await reader.next_lines()
    os.write(writing, b"on")

    async with trio.open_nursery() as nursery:
        second: list[bytes] = []

        async def read() -> None:
            second.extend(await reader.next_lines())

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        os.write(writing, b"d\nthird\n")

    assert first == [b"first"]
    assert second == [b"second", b"third"]


async def test_a_whole_file_is_one_value(tmp_path: Path) -> None:
    file = tmp_path / "value"
    file.write_bytes(b"a\nb\n" * 400_000)
    descriptor = os.open(file, os.O_RDONLY)
    reader = WholeReader(descriptor)

    found = [await reader.next_lines(), await reader.next_lines()]

    os.close(descriptor)
    assert found == [[file.read_bytes()], []]


async def test_waiting_for_a_pipe_can_be_cancelled(pipe: tuple[int, int]) -> None:
    reading, _ = pipe

    with trio.move_on_after(0.01) as scope:
        await LineReader(reading).next_lines()

    assert scope.cancelled_caught


async def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    file = tmp_path / "zeros"
    with file.open("wb") as output:
        output.truncate(LINE_BYTES_MAX + (4 << 20))  # A hole: it takes no room.
    descriptor = os.open(file, os.O_RDONLY)

    with pytest.raises(CommandError, match="a line is longer than 64 MiB"):
        await read_all(descriptor)
    os.lseek(descriptor, 0, os.SEEK_SET)
    with pytest.raises(CommandError, match="the value is longer than 64 MiB"):
        await WholeReader(descriptor).next_lines()

    os.close(descriptor)


async def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)

    with pytest.raises(IsADirectoryError):
        await read_all(descriptor)

    os.close(descriptor)
