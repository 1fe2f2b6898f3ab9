"""Taking turns between several sources of messages.

Pure: no clock, no I/O.
"""

from collections.abc import Iterator, Sequence


def shared(
    sources: Sequence[tuple[Iterator[tuple[int, int]], int]],
) -> Iterator[tuple[int, int]]:
    """Yield a share of each source, given in messages, and then what is left of all of them."""
    left: list[tuple[int, int]] = []
    for source, share in sources:
        wanted = share
        while wanted:
            found = next(source, None)
            if found is None:
                break
            first, end = found
            stop = min(end, first + wanted)
            yield first, stop
            wanted -= stop - first
            if stop < end:
                left.append((stop, end))
    yield from left
    for source, _ in sources:
        yield from source
