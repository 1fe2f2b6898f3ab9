"""Steps of handshakes: sites take turns, and leave nothing behind."""

from functools import partial

import pytest
import trio

from tidelog.wire.env.real.handshake_threads import HandshakeThreads


async def steps_in_order(*peers: str) -> list[str]:
    """Return the peers in the order of their steps, which all want to begin at once."""
    threads = HandshakeThreads()
    order: list[str] = []
    async with trio.open_nursery() as nursery:
        for peer in peers:
            nursery.start_soon(threads.run, partial(order.append, peer), peer)
    assert len(threads) == 0
    return order


@pytest.mark.parametrize(
    ("flooding", "other"),
    [
        ("192.0.2.1:{}", "192.0.2.2:1"),
        ("2001:db8:1:2::{}:1", "2001:db8:1:3::1:1"),
        ("::ffff:192.0.2.1:{}", "::ffff:192.0.2.2:1"),
    ],
)
async def test_a_site_with_many_handshakes_keeps_out_no_other(flooding: str, other: str) -> None:
    order = await steps_in_order(*[flooding.format(number) for number in range(1, 500)], other)

    assert len(order) == 500
    assert order.index(other) < 10


async def test_a_failed_or_cancelled_step_leaves_nothing() -> None:
    threads = HandshakeThreads()

    def fail() -> None:
        raise OSError("not TLS")

    with pytest.raises(OSError, match="not TLS"):
        await threads.run(fail, "192.0.2.1:1")
    with trio.CancelScope() as scope:
        scope.cancel()
        await threads.run(fail, "192.0.2.1:1")
    assert len(threads) == 0
