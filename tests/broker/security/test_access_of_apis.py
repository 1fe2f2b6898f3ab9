"""Answers of every API to each kind of principal, as one table."""

from trio.testing import MockClock

from tests.broker.security.access_of_apis import FILE, PRINCIPALS, table
from tidelog.broker.security.requirements import REQUIREMENTS
from tidelog.wire.protocol import api


async def test_every_api_answers_each_principal_as_in_the_table(
    autojump_clock: MockClock,
) -> None:
    assert await table(autojump_clock) == FILE.read_text(encoding="utf-8"), (
        "check the difference, then run `python -m tests.broker.security.access_of_apis`"
    )


def test_the_table_serves_no_client_what_needs_a_rule() -> None:
    heading, *lines = FILE.read_text(encoding="utf-8").splitlines()
    places = [heading.index(each) for each in PRINCIPALS]
    assert len(lines) == len(api.APIS)
    for line in lines:
        name = line.split(" ")[0]
        cells = [
            line[start:end].strip() for start, end in zip(places, [*places[1:], None], strict=True)
        ]
        requirement = REQUIREMENTS[int(api.ApiKey[name])]
        if requirement.is_open:
            assert set(cells) == {"open"}
            continue
        assert cells[0] in {"AUTHENTICATION_REQUIRED", "NOT_A_NODE"}, line
        assert cells[1] != "served", line
        if requirement.is_of_nodes:
            assert cells[1] == cells[2] == "NOT_A_NODE", line
        else:
            assert cells[2:] == ["served"] * 3, line
