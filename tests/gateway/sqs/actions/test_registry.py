"""The table of the actions."""

from tidelog.gateway.sqs.actions.registry import ACTIONS
from tidelog.gateway.sqs.protocol.codec import CALLS


def test_an_action_has_a_request_in_the_protocols() -> None:
    assert ACTIONS.keys() <= CALLS.keys()
