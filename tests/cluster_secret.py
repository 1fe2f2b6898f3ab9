"""The secret of all clusters in tests, and connections of their nodes."""

from tidelog.wire.env.env import Env
from tidelog.wire.transport.node_rpc import NodeDialer

SECRET = b"the secret of clusters in tests"


def dialer_of(env: Env, node_id: int) -> NodeDialer:
    """Return what connects a node to other nodes."""
    return NodeDialer(env.network, env.random.randbytes, node_id=node_id, secret=SECRET)
