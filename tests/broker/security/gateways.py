"""Access keys of tests, and gateways that act for their users."""

from datetime import UTC, datetime

from tests.broker.security.logins import change
from tests.broker.world import START_MS
from tests.cluster_secret import SECRET
from tidelog.broker.server import Broker
from tidelog.coordinator.security.commands import CreateAccessKey, SetToken, SetUser
from tidelog.wire.messages.access_keys import (
    GetSigningKeyReply,
    GetSigningKeyRequest,
    ImpersonateReply,
    ImpersonateRequest,
)
from tidelog.wire.protocol import api
from tidelog.wire.security.access_key import (
    AccessKeyName,
    SigningKey,
    SigningScope,
    impersonation_proof,
    root_id,
    root_of,
    secret_of,
    signing_key,
)
from tidelog.wire.security.token import new_token, parse_token
from tidelog.wire.transport.rpc import RpcConnection

KEY_ID = "TDLAAAAAAAAAAAAAAAAA"
NONCE = bytes(range(32))
TOKEN_OF_FRONT = new_token(bytes.fromhex("fedcba987654"), bytes(range(1, 33)))


def time_text(at_ms: int) -> str:
    text = datetime.fromtimestamp(at_ms // 1000, UTC).isoformat()  # No call that simulations trap.
    return text.removesuffix("+00:00").replace("-", "").replace(":", "") + "Z"


SCOPE = SigningScope(time_text(START_MS)[:8], "us-east-1", "sqs")


def signed_text(at_ms: int = START_MS, scope: SigningScope = SCOPE) -> bytes:
    return f"AWS4-HMAC-SHA256\n{time_text(at_ms)}\n{scope}\n{'0' * 64}".encode()


def key_of(user: str, key_id: str = KEY_ID, scope: SigningScope = SCOPE) -> SigningKey:
    """Return a signing key of an access key."""
    secret = secret_of(root_of(SECRET), AccessKeyName(key_id, user, ""), NONCE)
    return SigningKey(key_id, scope, signing_key(secret, scope))


async def with_key(broker: Broker, user: str = "alice", key_id: str = KEY_ID) -> SigningKey:
    """Create a user with an access key; return a signing key of it."""
    root = root_id(root_of(SECRET))
    await change(broker, SetUser(user, None), CreateAccessKey(key_id, user, "", NONCE, root))
    return key_of(user, key_id)


async def with_front(broker: Broker) -> None:
    """Create a user for a gateway, with a token."""
    parts = parse_token(TOKEN_OF_FRONT)
    assert parts is not None
    token = SetToken(parts.token_id, "front", parts.sha256, None)
    await change(broker, SetUser("front", None), token)


async def impersonate(
    connection: RpcConnection, key: SigningKey, *, time_ms: int = START_MS
) -> ImpersonateReply:
    request = ImpersonateRequest(
        key.access_key_id, *key.scope, time_ms, impersonation_proof(key, time_ms)
    )
    return await connection.ask(api.IMPERSONATE, request)


async def get_signing_key(
    connection: RpcConnection, signed: bytes, signature: bytes, *, key_id: str = KEY_ID
) -> GetSigningKeyReply:
    request = GetSigningKeyRequest(key_id, *SCOPE, signed, signature)
    return await connection.ask(api.GET_SIGNING_KEY, request)
