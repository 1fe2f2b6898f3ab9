"""What an acknowledgement says is what the topic's durability promises."""

import pytest

from tidelog.isr.durability import Durability, ack_level
from tidelog.wire.messages.produce import AckLevel, Acks


@pytest.mark.parametrize(
    ("acks", "durability", "level"),
    [
        (Acks.LEADER, Durability.FSYNC, AckLevel.LEADER_DURABLE),
        (Acks.ALL, Durability.FSYNC, AckLevel.DURABLE),
        (Acks.LEADER, Durability.REPLICATED, AckLevel.APPENDED),
        (Acks.ALL, Durability.REPLICATED, AckLevel.REPLICATED),
    ],
)
def test_acks_say_whose_and_durability_says_how(
    acks: Acks, durability: Durability, level: AckLevel
) -> None:
    assert ack_level(acks, durability) is level


def test_nothing_is_said_of_records_that_nobody_acknowledges() -> None:
    with pytest.raises(AssertionError, match="nothing is acknowledged"):
        ack_level(Acks.NONE, Durability.FSYNC)
