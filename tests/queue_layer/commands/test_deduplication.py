"""Deduplication of sends. Numbers in docstrings: docs/queue-statements.md."""

from hashlib import sha256
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.queue_layer.commands.deduplication import (
    GENERATION_OFFSETS_MAX,
    DeduplicationRule,
    DeduplicationWindow,
)
from tidelog.wire.config.queue_config import DEDUPLICATION_WINDOW_MS_MAX as WINDOW_MS_MAX
from tidelog.wire.config.queue_config import DeduplicationScope

WINDOW_MS = 300_000
QUEUE = DeduplicationRule(DeduplicationScope.QUEUE, is_content_based=False)
GROUP = DeduplicationRule(DeduplicationScope.GROUP, is_content_based=False)
CONTENT = DeduplicationRule(DeduplicationScope.QUEUE, is_content_based=True)


def key_of(name: str, rule: DeduplicationRule = QUEUE, group: bytes | None = b"g") -> bytes:
    key = rule.key_of(group, name.encode(), b"value")
    assert key is not None
    return key


def test_a_duplicate_within_the_window_is_answered_with_the_original() -> None:
    """Statement 39."""
    window = DeduplicationWindow(WINDOW_MS)
    assert window.original_of(key_of("x"), now_ms=1000) is None
    window.appended(key_of("x"), 7, accepted_ms=1000)

    assert window.original_of(key_of("x"), now_ms=1000) == 7
    assert window.original_of(key_of("x"), now_ms=1000 + WINDOW_MS - 1) == 7
    assert window.original_of(key_of("y"), now_ms=1000) is None


@pytest.mark.statement("b41")
def test_the_window_begins_with_the_first_accepted_send_and_duplicates_do_not_extend_it() -> None:
    """Statement 41."""
    window = DeduplicationWindow(window_ms=100)
    window.appended(key_of("x"), 1, accepted_ms=0)
    window.appended(key_of("x"), 2, accepted_ms=99)

    assert window.original_of(key_of("x"), now_ms=99) == 1
    assert window.original_of(key_of("x"), now_ms=100) is None

    window.appended(key_of("x"), 3, accepted_ms=100)
    assert window.original_of(key_of("x"), now_ms=199) == 3
    assert window.original_of(key_of("x"), now_ms=200) is None


@pytest.mark.statement("b42")
def test_queue_scope_ignores_the_message_group() -> None:
    """Statement 42."""
    assert key_of("x", QUEUE, b"g1") == key_of("x", QUEUE, b"g2") == key_of("x", QUEUE, None)


@pytest.mark.statement("b42")
def test_group_scope_separates_equal_ids_of_different_groups() -> None:
    """Statement 42."""
    keys = {key_of("x", GROUP, b"g1"), key_of("x", GROUP, b"g2"), key_of("x", GROUP, None)}
    assert len(keys) == 3


@pytest.mark.statement("b43")
def test_the_same_id_in_two_groups_is_remembered_for_both() -> None:
    """Statement 43: g1/x, g2/x, g1/x, and the third is a duplicate."""
    window = DeduplicationWindow(WINDOW_MS)
    window.appended(key_of("x", GROUP, b"g1"), 0, accepted_ms=0)
    window.appended(key_of("x", GROUP, b"g2"), 1, accepted_ms=0)

    assert window.original_of(key_of("x", GROUP, b"g1"), now_ms=1) == 0
    assert window.original_of(key_of("x", GROUP, b"g2"), now_ms=1) == 1


def test_the_end_of_a_group_is_not_the_beginning_of_an_id() -> None:
    assert key_of("c", GROUP, b"ab") != key_of("bc", GROUP, b"a")
    forged = b"\x01" + (1).to_bytes(8, "little") + b"a" + b"x"
    assert GROUP.key_of(None, forged, b"") != key_of("x", GROUP, b"a")


@pytest.mark.statement("b45")
def test_content_based_deduplication_uses_the_sha_256_of_the_value() -> None:
    """Statement 45."""
    by_content = CONTENT.key_of(b"g1", None, b"value")

    assert by_content == CONTENT.key_of(b"g2", None, b"value")
    assert by_content != CONTENT.key_of(b"g1", None, b"other")
    assert by_content == CONTENT.key_of(b"g1", sha256(b"value").hexdigest().encode(), b"")


@pytest.mark.statement("b45")
def test_an_explicit_id_wins_over_the_content() -> None:
    """Statement 45."""
    assert CONTENT.key_of(b"g", b"x", b"value") == CONTENT.key_of(b"g", b"x", b"other")
    assert CONTENT.key_of(b"g", b"x", b"value") != CONTENT.key_of(b"g", b"y", b"value")


def test_without_id_and_content_based_deduplication_a_message_has_no_key() -> None:
    """Statement 46: a send refuses it then."""
    assert QUEUE.key_of(b"g", None, b"value") is None


def test_an_empty_id_is_an_id() -> None:
    assert CONTENT.key_of(b"g", b"", b"value") == CONTENT.key_of(b"g", b"", b"other")


@pytest.mark.statement("b47")
def test_a_purge_clears_the_window() -> None:
    """Statement 47."""
    window = DeduplicationWindow(WINDOW_MS)
    window.appended(key_of("x"), 4, accepted_ms=0)
    window.appended(key_of("y"), 5, accepted_ms=0)
    window.forget_below(5)

    assert window.original_of(key_of("x"), now_ms=1) is None
    assert window.original_of(key_of("y"), now_ms=1) == 5

    window.appended(key_of("x"), 6, accepted_ms=2)
    assert window.original_of(key_of("x"), now_ms=3) == 6


@pytest.mark.statement("b47")
def test_a_window_rebuilt_from_the_log_after_a_purge_has_no_purged_ids() -> None:
    window = DeduplicationWindow(WINDOW_MS)
    window.forget_below(5)
    window.appended(key_of("x"), 4, accepted_ms=0)
    window.appended(key_of("y"), 5, accepted_ms=0)
    window.forget_below(3)

    assert window.original_of(key_of("x"), now_ms=1) is None
    assert window.original_of(key_of("y"), now_ms=1) == 5


def test_a_clock_set_back_does_not_reopen_a_deduplication_window() -> None:
    window = DeduplicationWindow(window_ms=100)
    window.appended(key_of("x"), 1, accepted_ms=1000)
    window.appended(key_of("y"), 2, accepted_ms=1100)

    assert window.original_of(key_of("x"), now_ms=1000) is None

    window.appended(key_of("z"), 3, accepted_ms=500)
    assert window.original_of(key_of("z"), now_ms=1199) == 3
    assert window.original_of(key_of("z"), now_ms=1200) is None


def test_expired_ids_are_dropped_by_generation() -> None:
    window = DeduplicationWindow(window_ms=100)
    for time in range(0, 10_000, 10):
        window.appended(key_of(str(time)), time, accepted_ms=time)

        assert len(window) <= 2 * 100 / 10


@pytest.mark.statement("b49")
def test_the_longest_window_and_the_widest_generation_fit_into_an_entry() -> None:
    window = DeduplicationWindow(window_ms=WINDOW_MS_MAX)
    window.appended(key_of("a"), 1, accepted_ms=0)
    window.appended(key_of("b"), GENERATION_OFFSETS_MAX, accepted_ms=WINDOW_MS_MAX - 1)
    window.appended(key_of("c"), GENERATION_OFFSETS_MAX + 1, accepted_ms=WINDOW_MS_MAX - 1)

    assert len(window) == 3
    assert window.original_of(key_of("a"), now_ms=WINDOW_MS_MAX - 1) == 1
    assert window.original_of(key_of("b"), now_ms=2 * WINDOW_MS_MAX - 2) == GENERATION_OFFSETS_MAX
    assert (
        window.original_of(key_of("c"), now_ms=2 * WINDOW_MS_MAX - 2) == GENERATION_OFFSETS_MAX + 1
    )
    assert window.original_of(key_of("c"), now_ms=2 * WINDOW_MS_MAX - 1) is None


@pytest.mark.statement("b41")
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), max_size=120),
    st.integers(1, 150),
)
def test_each_id_is_accepted_once_within_its_window(
    steps: list[tuple[int, int]], window_ms: int
) -> None:
    """Against a list of all accepted messages."""
    window, accepted = DeduplicationWindow(window_ms=window_ms), list[tuple[int, int, int]]()
    now_ms = 0
    for offset, (pause_ms, name) in enumerate(steps):
        now_ms += pause_ms
        originals = [o for o, n, t in accepted if n == name and now_ms - t < window_ms]
        expected = originals[-1] if originals else None
        assert window.original_of(key_of(str(name)), now_ms=now_ms) == expected
        if expected is None:
            accepted.append((offset, name, now_ms))
            window.appended(key_of(str(name)), offset, accepted_ms=now_ms)


@pytest.mark.statement("b41")
def test_a_window_rebuilt_from_the_recent_log_gives_the_same_answers() -> None:
    random, window_ms = Random(3), 200
    window, log = DeduplicationWindow(window_ms=window_ms), list[tuple[int, int, int]]()
    now_ms = 0
    for offset in range(2_000):
        now_ms += random.randrange(10)
        name = random.randrange(60)
        if window.original_of(key_of(str(name)), now_ms=now_ms) is None:
            window.appended(key_of(str(name)), offset, accepted_ms=now_ms)
            log.append((offset, name, now_ms))
        if offset % 100 == 0:
            again = DeduplicationWindow(window_ms=window_ms)
            for old_offset, old_name, accepted_ms in log:
                if now_ms - accepted_ms < window_ms:
                    again.appended(key_of(str(old_name)), old_offset, accepted_ms=accepted_ms)
            for name in range(60):
                key = key_of(str(name))
                assert again.original_of(key, now_ms=now_ms) == window.original_of(
                    key, now_ms=now_ms
                )
