"""What is done once for all who want it in one turn of the loop."""

import pytest
import trio

from tidelog.client.cluster.coalescer import Coalescer


async def test_what_many_want_in_one_turn_of_the_loop_is_done_once() -> None:
    done: list[int] = []
    wanted_count = 0

    async def want() -> None:
        nonlocal wanted_count
        wanted_count += 1
        await once.request()

    once = Coalescer(lambda: done.append(wanted_count))
    for _ in range(2):
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(want)

    assert done == [10, 20]


async def test_it_is_done_at_once_when_who_does_it_for_all_is_cancelled() -> None:
    done: list[bool] = []
    once = Coalescer(lambda: done.append(True))

    with trio.CancelScope() as scope:
        scope.cancel()
        await once.request()

    assert scope.cancelled_caught
    assert done == [True]
    await once.request()
    assert done == [True, True]


@pytest.mark.parametrize("is_again", [False, True])
async def test_who_wants_it_while_it_is_done_has_it_done_again(is_again: bool) -> None:
    done: list[bool] = []

    async with trio.open_nursery() as nursery:

        def do() -> None:
            done.append(True)
            if is_again and len(done) == 1:
                nursery.start_soon(once.request)

        once = Coalescer(do)
        await once.request()

    assert len(done) == 1 + is_again
