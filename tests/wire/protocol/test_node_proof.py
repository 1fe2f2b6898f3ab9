"""Tests of the proof of nodes: both sides know the secret, and no message serves twice."""

import msgspec
import pytest

from tidelog.wire.errors import NotANodeError
from tidelog.wire.messages.handshake import ProveNodeReply, ProveNodeRequest
from tidelog.wire.protocol.node_proof import NodeProver, NodeVerifier

SECRET = b"the secret of a cluster"
ASKING, ANSWERING = 1, 2
NONCE, OTHER_NONCE = b"a" * 32, b"b" * 32


def prover(secret: bytes = SECRET, *, node_id: int = ASKING, nonce: bytes = NONCE) -> NodeProver:
    return NodeProver(secret, node_id, nonce)


def verifier(secret: bytes = SECRET, *, nonce: bytes = OTHER_NONCE) -> NodeVerifier:
    return NodeVerifier(secret, ANSWERING, nonce)


def test_nodes_with_the_secret_prove_it_to_each_other() -> None:
    near, far = prover(), verifier()

    answer = far.answer(near.ask())
    before = far.proven_id
    accepted = far.answer(near.prove(answer))

    assert (before, far.proven_id) == (None, ASKING)
    assert accepted == answer
    assert accepted.node_id == ANSWERING


def test_a_node_does_not_prove_itself_to_one_without_the_secret() -> None:
    near = prover()

    with pytest.raises(NotANodeError, match="node 2 does not know the secret"):
        near.prove(verifier(b"the secret of another cluster").answer(near.ask()))


def test_a_proof_without_the_secret_is_refused() -> None:
    far, stranger = verifier(), prover(b"the secret of another cluster")
    own = verifier(b"the secret of another cluster", nonce=OTHER_NONCE)

    with pytest.raises(NotANodeError, match="node 1 does not know the secret"):
        far.answer(stranger.prove(own.answer(stranger.ask())))

    assert far.proven_id is None


def proven() -> tuple[ProveNodeReply, ProveNodeRequest]:
    """Return the answer and the proof of an earlier connection."""
    near, far = prover(), verifier()
    answer = far.answer(near.ask())
    return answer, near.prove(answer)


def test_a_proof_is_of_no_use_on_another_connection_or_for_another_node() -> None:
    _, proof = proven()
    replace = msgspec.structs.replace

    for far, replayed in (
        (verifier(nonce=b"c" * 32), proof),
        (verifier(), replace(proof, node_id=3)),
        (verifier(), replace(proof, nonce=b"c" * 32)),
        (NodeVerifier(SECRET, 3, OTHER_NONCE), proof),
    ):
        with pytest.raises(NotANodeError):
            far.answer(replayed)
        assert far.proven_id is None


def test_an_answer_is_no_proof() -> None:
    """A stranger gets answers from any node, and sends them back."""
    answer, _ = proven()
    far = verifier()

    with pytest.raises(NotANodeError):
        far.answer(ProveNodeRequest(ASKING, NONCE, answer.proof))


def test_an_answer_is_of_no_use_for_another_nonce() -> None:
    answer, _ = proven()

    with pytest.raises(NotANodeError):
        prover(nonce=b"c" * 32).prove(answer)


def test_nonces_of_another_length_do_not_run_together() -> None:
    near = prover(nonce=b"a" * 20)
    answer = verifier(nonce=b"a" * 44).answer(near.ask())

    with pytest.raises(NotANodeError):
        prover(nonce=b"a" * 32).prove(msgspec.structs.replace(answer, nonce=b"a" * 32))
