"""The disk is asked for just what durability needs, in the order in which it needs it."""

from tests.golden.disk_calls import FILE, disk_calls


def test_durability_rests_on_the_same_disk_calls_as_before() -> None:
    assert disk_calls() == FILE.read_text(encoding="utf-8"), (
        "run python -m tests.golden.disk_calls and look at the difference: is every sync still"
        " where it has to be?"
    )
