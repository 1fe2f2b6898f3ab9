"""The public keys of an identity provider: a JSON Web Key Set (RFC 7517), read with suspicion.

Pure: no clock, no I/O. A key that cannot verify a signature of a known algorithm is skipped, and so
is one that is too weak, or whose private part was published. The set has names, not paths: the
`kid` of a token is looked up among them and used for nothing else.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast, final

import msgspec
from joserfc.jwk import ECKey, OKPKey, RSAKey, import_key

KEYS_MAX: Final = 100
JWKS_BYTES_MAX: Final = 256 << 10
_RSA_BITS_MIN: Final = 2048
_ALGORITHMS_OF: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    ("RSA", ""): frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): frozenset({"EdDSA", "Ed25519"}),
}
"""Algorithms by type and curve of a key: none of them has a shared secret."""
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})

PublicKey = RSAKey | ECKey | OKPKey


class JwksError(Exception):
    """A document is no key set, or has no key of use."""


@final
@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A key that verifies signatures."""

    kid: str | None
    algorithms: frozenset[str]
    key: PublicKey


@final
class VerificationKeys:
    """The keys of one document."""

    def __init__(self, keys: Sequence[VerificationKey], skipped_count: int = 0) -> None:
        """Use `keys`; `skipped_count` others of the document are of no use."""
        self._keys = keys
        self.skipped_count = skipped_count

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._keys)

    @property
    def kids(self) -> Sequence[str]:
        """The names of the keys, sorted."""
        return sorted({each.kid for each in self._keys if each.kid is not None})

    def find(self, kid: str | None, algorithm: str) -> PublicKey | None:
        """Return the key with which a token must be signed, `None` if there is none.

        A token without a `kid` needs a set with a single key for its algorithm.
        """
        found = [
            each.key
            for each in self._keys
            if algorithm in each.algorithms and (kid is None or each.kid == kid)
        ]
        return found[0] if len(found) == 1 else None


def parse_jwks(data: bytes) -> VerificationKeys:
    """Return the keys of a document.

    Raises:
        JwksError: It is no key set, or no key in it is of use.
    """
    if len(data) > JWKS_BYTES_MAX:
        raise JwksError(f"the key set has more than {JWKS_BYTES_MAX >> 10} KiB")
    try:
        content: object = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise JwksError("the key set is not JSON") from error
    listed = cast("dict[str, object]", content).get("keys") if isinstance(content, dict) else None
    if not isinstance(listed, list):
        raise JwksError("the key set has no list of keys")
    found = [_key(each) for each in cast("list[object]", listed)[:KEYS_MAX]]
    keys = [each for each in found if each is not None]
    if not keys:
        raise JwksError(
            f"none of {len(found)} keys verifies signatures; it needs public keys of RSA with"
            f" {_RSA_BITS_MIN} bits, of P-256, P-384, P-521 or Ed25519"
        )
    return VerificationKeys(keys, len(found) - len(keys))


def _key(found: object) -> VerificationKey | None:
    """Return one key of a document, `None` if it is of no use."""
    if not isinstance(found, dict):
        return None
    fields = cast("dict[str, Any]", found)
    kid, algorithm = fields.get("kid"), fields.get("alg")
    kind, curve = fields.get("kty"), fields.get("crv", "")
    known = _ALGORITHMS_OF.get((str(kind), str(curve)))
    if known is None or _PRIVATE & fields.keys() or not _is_for_signatures(fields):
        return None
    algorithms = known if algorithm is None else known & {str(algorithm)}
    if not algorithms or not (kid is None or _is_text(kid)):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of weak keys, which are skipped below.
            key = import_key(fields)
        is_strong = not isinstance(key, RSAKey) or key.raw_value.key_size >= _RSA_BITS_MIN
    except Exception:  # noqa: BLE001  (a library raises many errors for what strangers write)
        return None
    if not is_strong or not isinstance(key, PublicKey):
        return None
    return VerificationKey(kid, algorithms, key)


def _is_text(*values: object) -> bool:
    return all(isinstance(each, str) for each in values)


def _is_for_signatures(fields: Mapping[str, object]) -> bool:
    use, operations = fields.get("use"), fields.get("key_ops")
    if use not in (None, "sig"):
        return False
    return operations is None or (isinstance(operations, list) and "verify" in operations)
