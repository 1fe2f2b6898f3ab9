"""Memory of fetched batches that is used again."""

from tidelog.client.consumer.fetch.chunk_memory import REUSED_BYTES_MIN, ChunkMemory

LONG = REUSED_BYTES_MIN + 1


def content(byte: int, length: int = LONG) -> memoryview:
    return memoryview(bytearray([byte]) * length)


def test_a_copy_does_not_change_with_the_reply() -> None:
    memory = ChunkMemory(kept_bytes_max=1 << 20)
    reply = content(1)

    copies = [memory.copy(reply), memory.copy(reply[:10])]
    reply[:] = content(2)

    assert [bytes(copy) for copy in copies] == [b"\1" * LONG, b"\1" * 10]


def test_memory_is_used_again_when_no_view_of_it_is_left() -> None:
    memory = ChunkMemory(kept_bytes_max=1 << 20)
    copy = memory.copy(content(1))
    kept_bytes = memory.kept_bytes
    part = copy[10:20]

    del copy
    other = memory.copy(content(2))
    assert memory.kept_bytes == 2 * kept_bytes
    assert (bytes(part), bytes(other)) == (b"\1" * 10, b"\2" * LONG)

    del part
    last = memory.copy(content(3))
    assert memory.kept_bytes == 2 * kept_bytes
    assert (bytes(other), bytes(last)) == (b"\2" * LONG, b"\3" * LONG)


def test_memory_that_is_too_short_or_in_use_is_passed_over() -> None:
    memory = ChunkMemory(kept_bytes_max=1 << 30)
    copies = [memory.copy(content(byte)) for byte in range(8)]
    del copies[2]

    long = memory.copy(content(9, 1 << 20))
    copies += [memory.copy(content(byte)) for byte in range(8)]

    assert bytes(long) == b"\x09" * (1 << 20)
    firsts = [copy[0] for copy in copies]
    assert firsts == [0, 1, 3, 4, 5, 6, 7, *range(8)]


def test_more_than_the_limit_is_not_kept_and_stays_valid() -> None:
    memory = ChunkMemory(kept_bytes_max=1 << 20)

    copies = [memory.copy(content(byte, 1 << 18)) for byte in range(10)]

    assert memory.kept_bytes == 1 << 20
    assert [copy[-1] for copy in copies] == list(range(10))
    memory.clear()
    assert memory.kept_bytes == 0
    assert [copy[-1] for copy in copies] == list(range(10))


def test_a_copy_cannot_be_written() -> None:
    memory = ChunkMemory(kept_bytes_max=1 << 20)

    assert memoryview(memory.copy(content(1))).readonly
