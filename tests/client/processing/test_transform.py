"""Calls of the application's transform."""

from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from tidelog.client.consumer.fetch.record import Record
from tidelog.client.processing.transform import SLICE_S, Function, FunctionCalls, Transformed
from tidelog.client.producer.producer_record import ProducerRecord


def record(offset: int, value: bytes = b"v") -> Record:
    return Record("orders", 0, offset, 0, None, value, ())


def calls(function: Function, **settings: bool) -> FunctionCalls:
    found = {"is_batch": False, "is_isolating": False, **settings}
    return FunctionCalls(function, tracing=None, now=lambda: 0.0, **found)


def doubled(given: Record) -> ProducerRecord | None:
    if given.value == b"poison":
        raise ValueError("poison")
    return None if given.value is None else ProducerRecord("doubled", given.value * 2)


async def asynchronously(given: Record) -> ProducerRecord | None:
    return doubled(given)


def twice(given: Record) -> Iterator[ProducerRecord]:
    found = doubled(given)
    assert found is not None
    yield found
    yield found


async def twice_asynchronously(given: Record) -> AsyncIterator[ProducerRecord]:
    for each in twice(given):
        yield each


def texts(found: Transformed) -> list[bytes | None]:
    return [each.value for each in found.outputs]


@pytest.mark.parametrize(
    ("function", "times"),
    [(doubled, 1), (asynchronously, 1), (twice, 2), (twice_asynchronously, 2)],
)
async def test_a_transform_is_a_function_or_a_generator_of_either_kind(
    function: Function, times: int
) -> None:
    found = await calls(function).run([record(0, b"a"), record(1, b"b")])

    assert texts(found) == [b"aa"] * times + [b"bb"] * times
    assert (found.count, found.failure) == (2, None)


def test_a_plain_function_runs_in_any_thread() -> None:
    assert texts(calls(twice).run_plain([record(0, b"a")])) == [b"aa", b"aa"]

    found = calls(asynchronously).run_plain([record(0)])

    assert isinstance(found.failure, TypeError)


async def test_the_output_of_a_call_that_fails_does_not_count() -> None:
    def half(given: Record) -> Iterator[ProducerRecord]:
        yield ProducerRecord("doubled", given.value)
        doubled(given)

    found = await calls(half).run([record(0, b"a"), record(1, b"poison"), record(2)])

    assert texts(found) == [b"a"]
    assert found.count == 1
    assert isinstance(found.failure, ValueError)


async def test_a_list_that_fails_is_tried_record_by_record() -> None:
    sizes: list[int] = []

    def all_doubled(given: Sequence[Record]) -> list[ProducerRecord]:
        sizes.append(len(given))
        return [output for each in given if (output := doubled(each)) is not None]

    records = [record(0, b"a"), record(1, b"poison"), record(2)]
    whole = await calls(all_doubled, is_batch=True).run(records)
    isolated = await calls(all_doubled, is_batch=True, is_isolating=True).run(records)

    assert (whole.count, texts(whole)) == (0, [])
    assert (isolated.count, texts(isolated)) == (1, [b"aa"])
    assert isinstance(isolated.failure, ValueError)
    assert sizes == [3, 3, 1, 1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (b"text", "returned bytes"),
        (7, "returned int"),
        ([7], "output of type int"),
        (ProducerRecord("doubled", "text"), "must be bytes or None, not str"),  # type: ignore[arg-type]
        (ProducerRecord("doubled", b"", timestamp_ms=-1), "timestamp_ms is -1"),
    ],
)
async def test_a_wrong_output_is_an_error_of_its_record(wrong: object, message: str) -> None:
    found = await calls(lambda _: wrong).run([record(0)])  # type: ignore[arg-type, return-value]

    assert found.count == 0
    assert message in str(found.failure)


async def test_a_slow_transform_returns_with_a_part_of_the_records() -> None:
    now = 0.0

    def slow(_: Record) -> None:
        nonlocal now
        now += SLICE_S / 2

    found = await FunctionCalls(
        slow, is_batch=False, is_isolating=False, tracing=None, now=lambda: now
    ).run([record(offset) for offset in range(9)])

    assert (found.count, found.failure) == (2, None)
