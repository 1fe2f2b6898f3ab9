"""Tests of the buffer of audit records: bounded, in order, and exact in what it counts."""

from tidelog.broker.audit.buffer import AuditBuffer, BufferedRecord


def record(text: str) -> BufferedRecord:
    return BufferedRecord(text.encode(), b"")


def test_records_stay_until_they_are_written_or_refused() -> None:
    buffer, told = AuditBuffer(), list[str]()
    first = BufferedRecord(b"one", b"", lambda: told.append("one"))
    for each in (first, record("two"), record("three")):
        assert buffer.put(each)

    assert [each.data for each in buffer.take(count_max=2, bytes_max=100)] == [b"one", b"two"]
    assert len(buffer) == 3
    assert not told
    buffer.drop(1, is_written=True)
    buffer.drop(1, is_written=False)

    assert told == ["one"]
    assert (buffer.written, buffer.lost) == (1, 1)
    buffer.drop(1, is_written=True)
    assert buffer.used_bytes == 0


def test_a_full_buffer_counts_what_it_loses() -> None:
    buffer = AuditBuffer(bytes_max=1_000)

    kept = [buffer.put(record("x" * 100)) for _ in range(10)]

    assert kept == [True] * 3 + [False] * 7
    assert buffer.lost == 7
    assert buffer.used_bytes <= 1_000


def test_one_record_is_taken_however_large_it_is() -> None:
    buffer = AuditBuffer()
    buffer.put(record("x" * 1_000))
    buffer.put(record("y"))

    assert len(buffer.take(count_max=10, bytes_max=10)) == 1


def test_a_record_is_withdrawn_only_before_a_write_of_it_begins() -> None:
    buffer = AuditBuffer()
    first, second = record("one"), record("two")
    buffer.put(first)
    buffer.put(second)
    buffer.take(count_max=1, bytes_max=100)

    assert not buffer.withdraw(first)
    assert buffer.withdraw(second)
    assert not buffer.withdraw(second)
    assert len(buffer) == 1
