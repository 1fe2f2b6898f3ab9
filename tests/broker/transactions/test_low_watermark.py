"""Where a staging log may begin."""

from random import Random

import pytest

from tidelog.broker.transactions.low_watermark import StagingLowWatermark


def test_what_nobody_needs_goes() -> None:
    watermark = StagingLowWatermark(leader_epoch=3, inherited_below=5)

    assert watermark.low_watermark([], log_start_offset=10, log_end_offset=90) == 90


def test_a_log_is_kept_from_where_the_first_transaction_that_is_needed_began() -> None:
    watermark = StagingLowWatermark(leader_epoch=3, inherited_below=5)
    watermark.on_append(6, 20)
    watermark.on_append(5, 30)
    watermark.on_append(6, 40)

    assert watermark.low_watermark([5, 6], log_start_offset=10, log_end_offset=90) == 20
    assert watermark.low_watermark([5, 9], log_start_offset=20, log_end_offset=90) == 30
    assert watermark.low_watermark([9], log_start_offset=30, log_end_offset=90) == 90, (
        "it is elsewhere"
    )


def test_what_earlier_leaders_took_is_kept_as_long_as_it_may_be_needed() -> None:
    watermark = StagingLowWatermark(leader_epoch=3, inherited_below=5)
    watermark.on_append(7, 80)

    assert watermark.low_watermark([4, 7], log_start_offset=10, log_end_offset=90) == 10
    assert watermark.low_watermark([7], log_start_offset=10, log_end_offset=90) == 80


@pytest.mark.parametrize("seed", range(20))
def test_nothing_that_is_needed_is_ever_below_the_low_watermark(seed: int) -> None:
    random = Random(seed)
    staged: dict[int, list[int]] = {}
    needed: set[int] = set()
    number, start, end = 1, 0, 0
    watermark = StagingLowWatermark(leader_epoch=0, inherited_below=number)
    for _ in range(300):
        kind = random.choice(["begin", "stage", "stage", "stage", "close", "lead"])
        if kind == "begin":
            needed.add(number)
            number += 1
        elif kind == "stage" and needed:
            chosen = random.choice(sorted(needed))
            watermark.on_append(chosen, end)
            staged.setdefault(chosen, []).append(end)
            end += random.randint(1, 9)
        elif kind == "close" and needed:
            needed.discard(random.choice(sorted(needed)))
        elif kind == "lead":
            watermark = StagingLowWatermark(leader_epoch=0, inherited_below=number)
        offset = watermark.low_watermark(needed, log_start_offset=start, log_end_offset=end)
        assert start <= offset <= end
        start = offset
        assert all(first >= start for each in needed for first in staged.get(each, ()))
    assert watermark.low_watermark((), log_start_offset=start, log_end_offset=end) == end
