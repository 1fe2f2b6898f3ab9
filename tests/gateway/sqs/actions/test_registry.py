"""The table of the actions."""

from typing import get_type_hints

import pytest

from tidelog.gateway.sqs.actions.registry import ACTIONS
from tidelog.gateway.sqs.caller import Caller
from tidelog.gateway.sqs.protocol.codec import CALLS
from tidelog.gateway.sqs.protocol.replies import SqsReply


def test_each_action_of_the_protocols_has_a_function() -> None:
    assert ACTIONS.keys() == CALLS.keys()
    assert len(ACTIONS) == 23


@pytest.mark.parametrize("action", CALLS)
def test_a_function_takes_the_request_of_its_action(action: str) -> None:
    hints = get_type_hints(ACTIONS[action])

    assert hints["caller"] is Caller
    assert hints["call"] is CALLS[action]
    assert issubclass(hints["return"], SqsReply)
