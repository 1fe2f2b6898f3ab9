"""The membership, and the count of a majority."""

from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.coordinator.raft.samples import B_WITH_NEW_DISK, THREE, A, B, C, D
from tidelog.coordinator.raft.errors import MembershipRefusedError
from tidelog.coordinator.raft.membership import (
    MEMBER_COUNT_MAX,
    Identity,
    Membership,
    decode_membership,
    encode_membership,
    index_of_majority,
)
from tidelog.wire.errors import WireFormatError


def test_a_learner_is_a_member_that_does_not_count() -> None:
    membership = THREE.with_learner(D)

    assert membership.members == (A, B, C, D)
    assert membership.voters == (A, B, C)
    assert not membership.is_majority([A, D])
    assert membership.is_majority([A, B])


def test_a_promoted_learner_counts() -> None:
    membership = THREE.with_learner(D).with_promoted(4)

    assert membership.voters == (A, B, C, D)
    assert membership.learners == ()
    assert not membership.is_majority([A, B])


def test_only_a_learner_is_promoted() -> None:
    with pytest.raises(MembershipRefusedError, match="node 4 is no learner; add it as a learner"):
        THREE.with_promoted(4)
    assert THREE.with_learner(D).with_promoted(4).voters == (A, B, C, D)
    with pytest.raises(MembershipRefusedError, match="node 2 is no learner"):
        THREE.with_promoted(2)


@pytest.mark.invariant("I75")
def test_a_node_id_is_a_member_with_one_disk_only() -> None:
    """Node ids are not reused while the old disk is a member."""
    with pytest.raises(MembershipRefusedError, match="remove it first if it has lost that disk"):
        THREE.with_learner(B_WITH_NEW_DISK)

    membership = THREE.without(2).with_learner(B_WITH_NEW_DISK)

    assert membership.identity_of(2) == B_WITH_NEW_DISK
    assert not membership.is_majority([A, B])


def test_voters_and_learners_can_be_removed() -> None:
    membership = THREE.with_learner(D)

    assert membership.without(4) == THREE
    assert membership.without(1).members == (B, C, D)


def test_the_removal_of_a_learner_keeps_all_other_learners() -> None:
    last = Identity(5, b"disk of 5")
    membership = THREE.with_learner(D).with_learner(last)

    assert membership.without(4).learners == (last,)
    assert membership.without(5).learners == (D,)
    assert membership.without(1).learners == (D, last)


def test_the_last_voter_stays() -> None:
    membership = Membership.of_voters([A]).with_learner(B)
    with pytest.raises(MembershipRefusedError, match="last voter; promote another node before it"):
        membership.without(1)

    assert membership.with_promoted(2).without(1).voters == (B,)


def test_a_non_member_cannot_be_removed() -> None:
    with pytest.raises(MembershipRefusedError, match="node 4 is no member"):
        THREE.without(4)


def test_the_number_of_members_is_bounded() -> None:
    voters = [Identity(node_id, b"d") for node_id in range(MEMBER_COUNT_MAX - 1)]

    full = Membership.of_voters(voters).with_learner(Identity(999, b"d"))

    assert len(full.members) == MEMBER_COUNT_MAX
    more = Membership.of_voters([*full.members, Identity(998, b"d")])
    for membership in (full, more):
        with pytest.raises(MembershipRefusedError, match="that is the limit"):
            membership.with_learner(Identity(1000, b"d"))


def test_a_decoder_accepts_as_many_members_as_there_can_be() -> None:
    def payload(count: int) -> bytes:
        voters = [Identity(node_id, b"d") for node_id in range(count)]
        return encode_membership(Membership.of_voters(voters))

    assert len(decode_membership(payload(MEMBER_COUNT_MAX)).voters) == MEMBER_COUNT_MAX
    with pytest.raises(WireFormatError, match="not a membership"):
        decode_membership(payload(MEMBER_COUNT_MAX + 1))


@pytest.mark.parametrize(
    ("identity", "is_legal"),
    [
        (Identity(0, b"d"), True),
        (Identity(2**31 - 1, b"d" * 16), True),
        (Identity(-1, b"d"), False),
        (Identity(2**31, b"d"), False),
        (Identity(1, b""), False),
        (Identity(1, b"d" * 17), False),
    ],
)
def test_a_node_id_has_31_bits_and_a_disk_id_1_to_16_bytes(
    identity: Identity, *, is_legal: bool
) -> None:
    payload = encode_membership(Membership((identity,)))

    with nullcontext() if is_legal else pytest.raises(WireFormatError, match="not a membership"):
        assert decode_membership(payload).voters == (identity,)


def test_an_identity_is_shown_by_its_node_and_the_begin_of_its_disk_id() -> None:
    assert str(Identity(3, bytes(range(16)))) == "3@00010203"


def test_a_membership_survives_encoding() -> None:
    membership = THREE.with_learner(D)

    assert decode_membership(encode_membership(membership)) == membership


def test_without_voters_there_is_no_majority() -> None:
    assert not Membership().is_majority([A])


def test_others_are_all_voters_but_one() -> None:
    assert THREE.with_learner(D).others(B) == [A, C]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=9))
def test_the_index_of_the_majority_is_the_highest_that_more_than_half_have(
    indexes: list[int],
) -> None:
    def reached(index: int) -> bool:
        return 2 * sum(other >= index for other in indexes) > len(indexes)

    found = index_of_majority(indexes)

    assert reached(found)
    assert not reached(found + 1)
