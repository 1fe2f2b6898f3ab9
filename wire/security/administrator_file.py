"""File with the administrator of a cluster: a user, and one way to prove to be it.

Pure: no I/O. The file is TOML:

    user = "admin"
    password = "..."   # or token = "tdl_..."
                       # or scram = "SCRAM-SHA-256$600000:SALT$STORED_KEY:SERVER_KEY"

The last form is that of RFC 5803 and PostgreSQL: it checks a password, and is of no use to log in.
"""

import re
import tomllib
from base64 import b64decode
from dataclasses import dataclass, field
from typing import Final, final

from tidelog.wire.errors import ConfigError, InvalidRequestError
from tidelog.wire.security.principal import check_name
from tidelog.wire.security.scram import PasswordKeys
from tidelog.wire.security.token import TokenParts, parse_token

_WAYS: Final = ("password", "token", "scram")
_SCRAM: Final = re.compile(
    r"SCRAM-SHA-256\$(?P<iterations>[0-9]{4,8}):(?P<salt>[A-Za-z0-9+/=]{8,128})"
    r"\$(?P<stored>[A-Za-z0-9+/]{43}=):(?P<server>[A-Za-z0-9+/]{43}=)"
)
_ITERATIONS_MIN: Final = 4096


@final
@dataclass(frozen=True, slots=True)
class NewAdministrator:
    """A user that will be an administrator; exactly one of the other fields is set."""

    user: str
    password: str | None = field(default=None, repr=False)
    keys: PasswordKeys | None = field(default=None, repr=False)
    token: TokenParts | None = field(default=None, repr=False)


def parse_administrator(text: str, *, file: str) -> NewAdministrator:
    """Return the administrator in the text of `file`; an error shows nothing of the text.

    Raises:
        ConfigError: The text is not of this form; one line.
    """
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        # Its message may quote a part of the password.
        raise _wrong(file, "is not TOML") from None
    for name in found:
        if name not in ("user", *_WAYS):
            raise _wrong(file, f"has an unknown name {name!r}")
    user = found.get("user")
    given = [name for name in _WAYS if name in found]
    if not isinstance(user, str) or len(given) != 1 or not isinstance(found[given[0]], str):
        raise _wrong(file, "has not exactly one user with one password, token or scram")
    try:
        check_name(user, of="user")
    except InvalidRequestError as error:
        raise _wrong(file, str(error)) from error
    (way,) = given
    return _administrator(user, way, found[way], file=file)


def _administrator(user: str, way: str, secret: str, *, file: str) -> NewAdministrator:
    if way == "password":
        if not secret:
            raise _wrong(file, "has an empty password")
        return NewAdministrator(user, password=secret)
    if way == "token":
        token = parse_token(secret)
        if token is None:
            raise _wrong(file, "has a token of another form than tdl_ID_SECRET")
        return NewAdministrator(user, token=token)
    keys = _keys(secret)
    if keys is None:
        raise _wrong(file, "has no scram of the form SCRAM-SHA-256$ITERATIONS:SALT$STORED:SERVER")
    return NewAdministrator(user, keys=keys)


def _keys(text: str) -> PasswordKeys | None:
    found = _SCRAM.fullmatch(text)
    if found is None or int(found["iterations"]) < _ITERATIONS_MIN:
        return None
    try:
        salt, stored, server = (
            b64decode(found[name], validate=True) for name in ("salt", "stored", "server")
        )
    except ValueError:
        return None
    return PasswordKeys(salt, int(found["iterations"]), stored, server)


def _wrong(file: str, problem: str) -> ConfigError:
    return ConfigError(
        f'the administrator file {file} {problem}; write two lines, user = "NAME" and'
        ' password = "...", or token or scram in place of password'
    )
