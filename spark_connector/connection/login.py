"""Login of a blocking connection: the same messages as those of other clients.

Shell: draws nonces, and keeps salted passwords, each of which takes most of a second.
"""

from collections.abc import Callable
from functools import lru_cache
from random import SystemRandom

from tidelog.client.security.exchange import (
    SaltPassword,
    login_by_password,
    login_by_token,
)
from tidelog.spark_connector.options import ConnectionOptions
from tidelog.wire.errors import AuthenticationFailedError
from tidelog.wire.messages.handshake import AuthenticateReply, AuthenticateRequest

_NONCE_BYTES = 24
_random = SystemRandom()


def log_in(
    options: ConnectionOptions,
    ask: Callable[[AuthenticateRequest], AuthenticateReply],
    *,
    peer: str,
    is_private: bool,
) -> None:
    """Prove the identity of `options`, if there is one; `ask` sends a request.

    Raises:
        AuthenticationFailedError: The credentials are wrong, or others could read them.
        TidelogError: `ask` failed.
    """
    if options.token is None and options.user is None:
        return
    if not is_private:
        raise AuthenticationFailedError(
            f"{peer} is reached without TLS, over which credentials would be readable; set"
            " client.tls.ca, or remove client.user, client.password and client.token"
        )
    if options.token is not None:
        steps = login_by_token(options.token)
    else:
        assert options.user is not None, "there are credentials"
        steps = login_by_password(options.user, _random.randbytes(_NONCE_BYTES))
    step = next(steps)
    try:
        while True:
            if isinstance(step, SaltPassword):
                step = steps.send(_salted(options.password or "", step))
            else:
                step = steps.send(ask(step))
    except StopIteration:
        return


@lru_cache(maxsize=8)
def _salted(password: str, by: SaltPassword) -> bytes:
    # Not at the top: sources without passwords need no SCRAM.
    from tidelog.wire.security.scram import SaltedBy, salted_password  # noqa: PLC0415

    return salted_password(password, SaltedBy(*by))
