"""What a command comes to, as frames."""

from tidelog.queue_layer.outcome import Outcome
from tidelog.wire.messages.queue_journal import Frame, Seeked


def test_entries_of_one_command_are_one_frame() -> None:
    assert Outcome(7, [Seeked(1), Seeked(2)], None).frames == [Frame(7, [Seeked(1), Seeked(2)])]


def test_without_entries_there_is_nothing_to_append() -> None:
    assert Outcome(7, [], "reply").frames == []
