"""The table of what each API needs of a client."""

from tidelog.broker.dispatch import NODE_APIS
from tidelog.broker.security.requirements import REQUIREMENTS
from tidelog.wire.protocol import api


def test_every_api_has_a_requirement() -> None:
    missing = {each.key.name for each in api.APIS if int(each.key) not in REQUIREMENTS}
    assert not missing, "add them to broker/security/requirements.py"


def test_no_rule_opens_an_api_of_nodes() -> None:
    shared = {int(api.LIST_OFFSETS.key)}
    assert all(REQUIREMENTS[key].is_of_nodes for key in NODE_APIS - shared)


def test_every_requirement_says_something() -> None:
    for key, each in REQUIREMENTS.items():
        is_open = each.is_open or each.is_of_nodes or each.is_of_gateways
        assert is_open != bool(each.needs or each.items or each.shown), key


def test_only_the_first_requests_of_a_connection_are_open() -> None:
    opened = {key for key, each in REQUIREMENTS.items() if each.is_open}
    assert opened == {int(each.key) for each in (api.HELLO, api.PROVE_NODE, api.AUTHENTICATE)}


def test_the_handler_decides_about_gateways_alone() -> None:
    decided = {key for key, each in REQUIREMENTS.items() if each.is_of_gateways}
    assert decided == {int(api.IMPERSONATE.key)}
