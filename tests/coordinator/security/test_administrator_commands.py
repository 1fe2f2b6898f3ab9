"""The first administrator of a cluster, and one after a lock-out."""

import pytest

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.metadata.cluster_events import ClusterEventKind
from tidelog.coordinator.metadata.commands import SetFeatureLevel
from tidelog.coordinator.security.commands import RemoveUser, SetAdministrator, SetRole, SetUser
from tidelog.coordinator.security.records import ScramCredential, UserSet
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.messages.features import OWN_LEVELS

PASSWORD = ScramCredential(b"salt", 4096, b"stored key", b"server key")
OTHER = ScramCredential(b"other salt", 4096, b"other key", b"other server key")


def secured() -> Cluster:
    """Return a cluster of one broker with the feature level of security records."""
    cluster = Cluster()
    cluster.supported_levels = OWN_LEVELS
    cluster.start(1)
    cluster.do(SetFeatureLevel(OWN_LEVELS.max_level, [1]))
    return cluster


def test_the_first_user_of_a_cluster_is_its_administrator() -> None:
    cluster = secured()
    cluster.do(SetAdministrator("root", PASSWORD))

    security = cluster.state.security
    assert security.users == {"root": UserSet("root", PASSWORD)}
    assert security.roles["admin"].members == ("root",)
    assert cluster.state.events.total == 0


def test_the_first_administrator_may_have_a_token_alone() -> None:
    cluster = secured()
    cluster.do(SetAdministrator("root", token_id="01", token_sha256=bytes(32)))

    security = cluster.state.security
    assert security.users == {"root": UserSet("root", None)}
    assert (security.tokens["01"].user, security.tokens["01"].expires_at_ms) == ("root", None)


def test_a_cluster_with_users_gets_no_first_administrator() -> None:
    cluster = secured()
    cluster.do(SetAdministrator("root", PASSWORD))
    version = cluster.state.security.version

    cluster.do(SetAdministrator("root", OTHER))
    cluster.do(SetAdministrator("mallory", OTHER))

    assert cluster.state.security.version == version


def test_a_user_by_certificate_is_an_administrator_as_well() -> None:
    cluster = secured()
    cluster.do(SetRole("admin", ("by-certificate",)))

    cluster.do(SetAdministrator("mallory", OTHER))

    assert cluster.state.security.roles["admin"].members == ("by-certificate",)


def test_a_recovery_gives_a_user_a_password_and_the_role_and_leaves_the_rest() -> None:
    cluster = secured()
    cluster.do(SetAdministrator("root", PASSWORD))
    cluster.do(SetUser("alice", PASSWORD))

    cluster.do(SetAdministrator("alice", OTHER, recovered_by=1))

    security = cluster.state.security
    assert security.users["alice"].credential == OTHER
    assert security.users["root"].credential == PASSWORD
    assert security.roles["admin"].members == ("alice", "root")


def test_a_recovery_with_a_token_keeps_the_password() -> None:
    cluster = secured()
    cluster.do(SetUser("root", PASSWORD))

    cluster.do(SetAdministrator("root", None, "01", bytes(32), recovered_by=1))

    assert cluster.state.security.users["root"].credential == PASSWORD
    assert list(cluster.state.security.tokens) == ["01"]


def test_a_recovery_helps_a_cluster_without_any_user() -> None:
    cluster = secured()
    cluster.do(SetAdministrator("root", PASSWORD))
    cluster.do(RemoveUser("root"))

    cluster.do(SetAdministrator("root", OTHER, recovered_by=1))

    assert cluster.state.security.roles["admin"].members == ("root",)


def test_a_recovery_is_an_event_until_it_is_acknowledged_and_a_repetition_is_none() -> None:
    cluster = secured()
    recovery = SetAdministrator("root", OTHER, recovered_by=1)
    cluster.do(recovery)
    cluster.do(recovery)

    (event,) = cluster.state.events.unacknowledged
    assert (event.kind, event.node_id) == (ClusterEventKind.ADMINISTRATOR_RECOVERED, 1)
    assert "user root got the role admin" in event.detail


def test_other_members_of_the_role_stay_administrators() -> None:
    cluster = secured()
    cluster.do(SetRole("admin", ("alice",)))

    cluster.do(SetAdministrator("root", OTHER, recovered_by=1))

    assert cluster.state.security.roles["admin"].members == ("alice", "root")


def test_an_illegal_name_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="is no legal name"):
        secured().do(SetAdministrator("a b", PASSWORD))
