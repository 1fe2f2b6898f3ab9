"""The broker's end of SCRAM: any bytes are a failure, and never a defect."""

from collections import Counter
from random import Random

from tests.broker.security.logins import ALICES, BY, credential
from tidelog.broker.security.scram import ScramUsers
from tidelog.coordinator.security.records import UserSet
from tidelog.coordinator.security.state import SecurityState
from tidelog.wire.errors import AuthenticationFailedError
from tidelog.wire.security.scram import ScramLogin, salted_password

LETTERS = "nrcpsiev=,y+/AZ09 \x00\x7fé\u00ad\u0627\U0001d4b3%"


def mutated(random: Random, message: bytes) -> bytes:
    """Return a message with some characters added, removed, replaced or repeated."""
    text = message.decode()
    for _ in range(random.randint(1, 4)):
        at, end = random.randint(0, len(text)), random.randint(0, len(text))
        match random.randint(0, 3):
            case 0:
                text = text[:at] + random.choice(LETTERS) + text[at:]
            case 1:
                text = text[:at] + text[at + random.randint(1, 3) :]
            case 2:
                text = text[:at] + random.choice(LETTERS) + text[at + 1 :]
            case _:
                text = text[:at] + text[at:end] * random.randint(1, 3) + text[end:]
    return text.encode()


async def test_mutated_messages_prove_nothing() -> None:
    random = Random(29)
    security = SecurityState()
    security.apply(UserSet("alice", credential(ALICES)))
    users = ScramUsers(lambda: security, random, secret=b"the secret of a cluster")
    salted = salted_password(ALICES, BY)
    outcomes = Counter[str]()
    for _ in range(3_000):
        exchange, login = users.start(), ScramLogin("alice", random.randbytes(12))
        first = login.first()
        is_first = random.random() < 0.5
        try:
            challenge = await exchange.step(mutated(random, first) if is_first else first)
            login.challenge(challenge.data)
            proof = login.proof(salted)
            # The last character of a proof has bits that its encoding does not use.
            changed = mutated(random, proof[:-3]) + proof[-3:]
            reached = await exchange.step(changed)
        except AuthenticationFailedError:
            outcomes["failed"] += 1
        else:
            assert reached.result is not None
            assert changed == proof
            outcomes["unchanged"] += 1
    assert outcomes["failed"] > 2_800


def test_the_keys_of_an_unknown_user_look_like_others_and_stay_the_same() -> None:
    random = Random(7)
    found = credential(ALICES)
    users = ScramUsers(SecurityState, random, secret=b"the secret of a cluster")
    made_up, is_known = users.credential("mallory")
    assert not is_known
    assert len(made_up.stored_key) == len(found.stored_key)
    assert len(made_up.salt) == len(found.salt)
    assert users.credential("mallory") == (made_up, False)
    assert users.credential("mallory2")[0] != made_up
