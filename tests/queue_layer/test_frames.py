"""Decisions, cut into frames."""

from tidelog.queue_layer.frames import FRAME_BYTES_MAX, frames_of
from tidelog.queue_layer.outcome import Outcome
from tidelog.wire.messages.queue_journal import (
    AnyEntry,
    DeadLettered,
    JournalFrame,
    Purged,
    Seeked,
    encode,
)

NOW_MS = 1_700_000_000_000
TARGET = (b"dead letter topic", 3)


def test_what_is_small_is_one_frame() -> None:
    entries: list[AnyEntry] = [Seeked(1), Purged(2)]

    assert list(frames_of(NOW_MS, entries)) == [JournalFrame(NOW_MS, entries)]


def test_nothing_is_no_frame() -> None:
    assert list(frames_of(NOW_MS, [])) == []


def test_frames_have_all_entries_in_their_order_and_are_as_large_as_they_may_be() -> None:
    entries: list[AnyEntry] = [
        DeadLettered([(place, 1)], TARGET, "\N{EURO SIGN}" * 8192) for place in range(100)
    ]

    frames = list(frames_of(NOW_MS, entries))

    assert [entry for frame in frames for entry in frame.entries] == entries
    sizes = [len(encode(frame)) for frame in frames]
    assert max(sizes) <= FRAME_BYTES_MAX
    assert min(sizes[:-1]) > FRAME_BYTES_MAX - 25_000


def test_entries_of_one_command_are_one_frame() -> None:
    assert Outcome(7, [Seeked(1), Seeked(2)], None).frames == [
        JournalFrame(7, [Seeked(1), Seeked(2)])
    ]


def test_without_entries_there_is_nothing_to_append() -> None:
    assert Outcome(7, [], "reply").frames == []
