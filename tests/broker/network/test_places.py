"""Tests of places: which connection makes room, and that looking for one stays cheap."""

from typing import final

from tidelog.broker.network.places import ConnectionPlaces

LIMIT = 10


@final
class Caller:
    """A connection; counts how often it was looked at."""

    def __init__(self, share_key: str) -> None:
        self.share_key = share_key
        self.node_id: int | None = None
        self.is_admitted = True
        self.has_ended = False
        self.is_busy = False
        self.look_count = 0

    @property
    def is_idle(self) -> bool:
        self.look_count += 1
        return not self.is_busy


def filled(*shares: tuple[str, int]) -> tuple[ConnectionPlaces[Caller], list[Caller]]:
    """Return places with so many connections of each principal, and these."""
    places: ConnectionPlaces[Caller] = ConnectionPlaces(LIMIT)
    callers = [Caller(key) for key, count in shares for _ in range(count)]
    for caller in callers:
        places.add(caller)
    return places, callers


def test_the_oldest_idle_connection_of_a_principal_above_half_makes_room() -> None:
    places, callers = filled(("user:quiet", 4), ("user:flood", 6))
    callers[4].is_busy = True

    assert places.excess(newcomer="h") is callers[5]


def test_half_of_the_places_is_no_excess() -> None:
    places, callers = filled(("user:quiet", 5), ("user:flood", 5))
    assert places.excess(newcomer="h") is None

    places.add(Caller("user:flood"))
    assert places.excess(newcomer="h") is callers[5]
    places.discard(callers[5])
    assert places.excess(newcomer="h") is None


def test_a_newcomer_of_the_same_address_gets_no_place() -> None:
    places, callers = filled(("h", 10))

    assert places.excess(newcomer="h") is None
    assert places.excess(newcomer="i") is callers[0]


def test_connections_count_for_the_principal_that_they_have_authenticated_as() -> None:
    places, callers = filled(*((f"h{number}", 1) for number in range(LIMIT)))
    assert places.excess(newcomer="i") is None

    for caller in callers[:6]:
        caller.share_key = "user:flood"
        places.refile(caller)

    assert places.excess(newcomer="i") is callers[0]


def test_a_connection_that_has_gone_is_not_filed_again() -> None:
    places, callers = filled(("h", 6))
    for caller in callers[:2]:
        places.discard(caller)
        places.refile(caller)

    assert places.excess(newcomer="i") is None


def test_connections_of_nodes_are_no_excess() -> None:
    places, callers = filled(("h", 8))
    for caller in callers[:2]:
        caller.node_id = 2

    assert places.excess(newcomer="i") is callers[2]
    callers[2].node_id = 3
    assert places.excess(newcomer="i") is None  # Five clients are left.


def test_principals_with_connections_are_counted_and_nodes_are_not() -> None:
    places, callers = filled(("h", 2), ("i", 1), ("user:alice", 1))
    assert places.principal_count == 3

    callers[2].node_id = 2
    places.drop_nodes()
    callers[0].share_key = "user:alice"
    places.refile(callers[0])
    assert places.principal_count == 2
    places.discard(callers[1])
    assert places.principal_count == 1


def test_a_search_looks_at_few_connections_and_the_next_one_continues() -> None:
    places: ConnectionPlaces[Caller] = ConnectionPlaces(LIMIT)
    callers = [Caller("h") for _ in range(1000)]
    for caller in callers:
        caller.is_busy = True
        places.add(caller)
    callers[999].is_busy = False

    found = [places.excess(newcomer="i") for _ in range(16)]

    assert found[:15] == [None] * 15
    assert found[15] is callers[999]
    assert sum(caller.look_count for caller in callers) == 1000


def test_the_oldest_silent_connection_makes_room_first() -> None:
    places, callers = filled(("h", 3))
    assert places.oldest_silent() is None
    silent = [Caller("i"), Caller("i")]
    for caller in silent:
        caller.is_admitted = False
        places.add(caller)

    assert places.oldest_silent() is silent[0]
    silent[0].has_ended = True
    assert places.oldest_silent() is silent[1]
    places.discard(silent[1])
    assert places.oldest_silent() is None
    assert len(callers) == 3
