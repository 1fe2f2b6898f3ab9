"""Tests of the fold of repeated events: one for each principal, host and action, bounded."""

from tidelog.broker.audit.event import AuditEvent, AuditKind, RequestOrigin
from tidelog.broker.audit.fold import EventFold, is_folded
from tidelog.broker.audit.usage import OTHER
from tidelog.wire.security.principal import Principal, user_principal

ALICE, BOB = user_principal("alice"), user_principal("bob")


def denial(
    principal: Principal = ALICE, address: str = "10.0.0.1:4711", resource: str = "topic:orders"
) -> AuditEvent:
    origin = RequestOrigin(principal, address, "app")
    return AuditEvent(
        AuditKind.DENIAL, "topic.write", "NOT_AUTHORIZED", origin, resource, "no grant"
    )


def test_equal_denials_from_one_host_are_one_record_with_a_count() -> None:
    fold = EventFold()

    for number in range(1_000):
        fold.add(denial(address=f"10.0.0.1:{number}"), now_ms=5_000 + number)

    (folded,) = fold.take()
    assert folded.times == 1_000
    assert (folded.first_ms, folded.last_ms) == (5_000, 5_999)
    assert folded.event == denial(address="10.0.0.1:0")
    assert fold.take() == []


def test_denials_of_other_principals_hosts_and_resources_are_told_apart() -> None:
    fold = EventFold()

    fold.add(denial(), now_ms=1)
    fold.add(denial(BOB), now_ms=2)
    fold.add(denial(address="10.0.0.2:4711"), now_ms=3)
    fold.add(denial(resource="topic:payments"), now_ms=4)

    assert [each.times for each in fold.take()] == [1, 1, 1, 1]


def test_different_events_beyond_the_maximum_count_together() -> None:
    fold = EventFold(different_max=10)

    for number in range(1_000):
        fold.add(denial(user_principal(f"user{number}")), now_ms=number)

    *told_apart, other = fold.take()
    assert [each.times for each in told_apart] == [1] * 10
    assert other.times == 990
    assert (other.event.action, other.event.origin, other.event.resource) == (OTHER, None, "")
    assert other.event.result == "NOT_AUTHORIZED"


def test_denials_and_failed_authentications_are_folded_and_nothing_else() -> None:
    def is_kind_folded(kind: AuditKind, result: str) -> bool:
        return is_folded(AuditEvent(kind, "any", result))

    assert is_kind_folded(AuditKind.DENIAL, "NOT_AUTHORIZED")
    assert is_kind_folded(AuditKind.AUTHENTICATION, "AUTHENTICATION_FAILED")
    assert not is_kind_folded(AuditKind.AUTHENTICATION, "ok")
    assert not is_kind_folded(AuditKind.ADMINISTRATION, "NOT_AUTHORIZED")
