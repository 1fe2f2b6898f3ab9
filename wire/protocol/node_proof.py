"""The proof that a connection joins two nodes of one cluster, by a secret that all of them share.

Pure: no clock, no I/O. Both sides draw a nonce, and show a MAC of both nonces and node ids under
the secret. So a peer without the secret can neither answer nor replay, and a proof is of no use on
another connection or for another node id. The connection itself is not protected: that needs TLS.

    asking node                                   answering node
        node id a, nonce a               ───▶
                                         ◀───     node id b, nonce b, MAC("answer", ...)
        node id a, nonce a, MAC("ask", ...) ─▶
                                         ◀───     the same as before: accepted
"""

import hmac
from typing import Final, final

from tidelog.wire.errors import NotANodeError
from tidelog.wire.messages.handshake import ProveNodeReply, ProveNodeRequest

NONCE_BYTES: Final = 32
SECRET_BYTES_MIN: Final = 16
_ASK: Final = b"tidelog/ask"
_ANSWER: Final = b"tidelog/answer"
_ADVICE: Final = (
    "copy the file of cluster_secret_file from a node of the cluster, or correct the addresses"
)


@final
class NodeProver:
    """The asking end of one connection."""

    def __init__(self, secret: bytes, node_id: int, nonce: bytes) -> None:
        """Prove to be the node `node_id` under `secret`, with a fresh `nonce`."""
        self._secret = secret
        self._node_id = node_id
        self._nonce = nonce

    def ask(self) -> ProveNodeRequest:
        """Return the first request."""
        return ProveNodeRequest(self._node_id, self._nonce)

    def prove(self, answer: ProveNodeReply) -> ProveNodeRequest:
        """Return the second request, when the answer to the first has proved the other side.

        Raises:
            NotANodeError: The other side does not know the secret.
        """
        both = _both((self._node_id, self._nonce), (answer.node_id, answer.nonce))
        if not hmac.compare_digest(_mac(self._secret, _ANSWER, both), answer.proof):
            raise NotANodeError(
                f"node {answer.node_id} does not know the secret of this cluster; {_ADVICE}"
            )
        return ProveNodeRequest(self._node_id, self._nonce, _mac(self._secret, _ASK, both))


@final
class NodeVerifier:
    """The answering end of one connection."""

    def __init__(self, secret: bytes, node_id: int, nonce: bytes) -> None:
        """Answer as the node `node_id` under `secret`, with a fresh `nonce`."""
        self._secret = secret
        self._node_id = node_id
        self._nonce = nonce
        self.proven_id: int | None = None
        """The node at the other end; `None` before its proof."""

    def answer(self, request: ProveNodeRequest) -> ProveNodeReply:
        """Return the answer to a request; the second one proves the other side.

        Raises:
            NotANodeError: The other side does not know the secret.
        """
        both = _both((request.node_id, request.nonce), (self._node_id, self._nonce))
        if request.proof:
            if not hmac.compare_digest(_mac(self._secret, _ASK, both), request.proof):
                raise NotANodeError(
                    f"node {request.node_id} does not know the secret of this cluster; {_ADVICE}"
                )
            self.proven_id = request.node_id
        return ProveNodeReply(self._node_id, self._nonce, _mac(self._secret, _ANSWER, both))


def _both(asking: tuple[int, bytes], answering: tuple[int, bytes]) -> bytes:
    """Return both ids and nonces as bytes; nonces have a length, so no two of them run together."""
    (asking_id, asked), (answering_id, answered) = asking, answering
    head = b"%d %d %d %d " % (asking_id, len(asked), answering_id, len(answered))
    return head + asked + answered


def _mac(secret: bytes, role: bytes, both: bytes) -> bytes:
    return hmac.digest(secret, role + b" " + both, "sha256")
