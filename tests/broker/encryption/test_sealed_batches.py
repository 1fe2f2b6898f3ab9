"""Tests of sealed batches: round trips, tampering, place and key."""

from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tests.broker.encryption.keyrings import MASTER, OTHER_MASTER, TOPIC_ID, Keys, key_file
from tests.wire.batches import HEADER_FIELDS, flipped_bits, reseal, stored_batch
from tidelog.broker.encryption.aes_gcm import batch_key
from tidelog.broker.encryption.master_keys import MasterKeys, master_id_of
from tidelog.broker.encryption.partition_cipher import PartitionCipher
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import (
    FORMAT_VERSION,
    HEADER_SIZE,
    KNOWN_FORMATS,
    BatchHeader,
    check_produced,
    has_valid_payload,
    header_of,
    parse_header,
    stamp_leader,
    stamp_replica,
)
from tidelog.wire.batch.sealed_batch import SEAL_OVERHEAD, seal_id
from tidelog.wire.errors import (
    ConfigError,
    CorruptRecordError,
    InvalidBatchError,
    InvalidRequestError,
    KeyUnavailableError,
)

NOT_BOUND = ("header_crc", "batch_crc", "durable_position")
"""Fields outside of the seal: each replica writes its own, and checksums cover themselves."""


def sealed_by(
    cipher: PartitionCipher,
    codec: Codec = Codec.NONE,
    *,
    base_offset: int = 1000,
    format_version: int = FORMAT_VERSION,
) -> tuple[bytearray, BatchHeader]:
    """Return the sealed form of the sample batch, as on a disk, and the header of the plain one."""
    plain = stored_batch(codec, format_version=format_version)
    header = header_of(plain)
    sealed, _ = cipher.seal(memoryview(plain), header, base_offset=base_offset, leader_epoch=7)
    stored = bytearray(sealed)
    stamp_replica(memoryview(stored), durable_position=4096)
    return stored, header


def test_a_sealed_batch_has_valid_checksums_and_hides_its_records() -> None:
    keys = Keys()
    keys.rotate()
    sealed, plain_header = sealed_by(keys.cipher())

    header = parse_header(sealed)

    assert header is not None
    assert header.is_sealed
    assert has_valid_payload(header, sealed)
    assert header.payload_length == plain_header.payload_length + SEAL_OVERHEAD
    assert b"hello" in stored_batch()
    assert b"hello" not in sealed
    assert b"user-1" not in sealed


@pytest.mark.parametrize("version", KNOWN_FORMATS)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
def test_an_opened_batch_is_the_batch_of_the_producer(codec: Codec, version: int) -> None:
    keys = Keys()
    keys.rotate()
    sealed, _ = sealed_by(keys.cipher(), codec, format_version=version)
    header = parse_header(sealed)
    assert header is not None

    opened_header, opened = keys.cipher().open(header, sealed)

    assert bytes(opened) == bytes(stored_batch(codec, format_version=version))
    assert opened_header == header_of(stored_batch(codec, format_version=version))


def test_a_producer_cannot_send_a_sealed_batch() -> None:
    keys = Keys()
    keys.rotate()
    sealed, _ = sealed_by(keys.cipher())

    with pytest.raises(InvalidBatchError, match="flags 0x0400"):
        check_produced(memoryview(sealed))


def tampered(sealed: bytearray) -> Iterator[tuple[int, bytearray]]:
    """Yield the sealed batch with each bit flipped that a seal protects, under right checksums."""
    free = [
        range(at, at + (8 if letter in "Qq" else 4))
        for at, letter in (HEADER_FIELDS[name] for name in NOT_BOUND)
    ]
    for bit, damaged in flipped_bits(sealed):
        byte = bit // 8
        if byte >= 4 and not any(byte in each for each in free):
            yield byte, reseal(damaged)


def test_every_flipped_bit_under_right_checksums_breaks_the_seal() -> None:
    keys = Keys()
    keys.rotate()
    cipher = keys.cipher()
    sealed, _ = sealed_by(cipher)
    count = 0
    for byte, damaged in tampered(sealed):
        header = parse_header(damaged)
        assert header is not None
        if header.size != len(damaged) or not header.is_sealed:
            continue  # Its length is wrong, or it looks plain; its payload is no columns then.
        if byte in range(HEADER_SIZE, HEADER_SIZE + 4):
            with pytest.raises(KeyUnavailableError, match="not known here yet"):
                cipher.open(header, damaged)
        else:
            with pytest.raises(CorruptRecordError):
                cipher.open(header, damaged)
        count += 1
    assert count > 8 * (len(sealed) - HEADER_SIZE)


def test_a_batch_that_was_moved_to_another_partition_topic_or_offset_is_damaged() -> None:
    keys = Keys()
    keys.rotate()
    sealed, _ = sealed_by(keys.cipher(0))
    header = parse_header(sealed)
    assert header is not None
    elsewhere = bytearray(sealed)
    stamp_leader(memoryview(elsewhere), base_offset=2000, leader_epoch=7)
    stamp_replica(memoryview(elsewhere), durable_position=0)
    moved = parse_header(elsewhere)
    assert moved is not None

    with pytest.raises(CorruptRecordError):
        keys.cipher(1).open(header, sealed)
    with pytest.raises(CorruptRecordError):
        keys.cipher(0).open(moved, elsewhere)


def test_no_two_batches_have_one_salt_and_counter() -> None:
    keys = Keys()
    keys.rotate()
    seen: set[bytes] = set()
    for _ in range(3):
        cipher = keys.cipher()
        for offset in range(20):
            sealed, _ = sealed_by(cipher, base_offset=offset)
            seen.add(bytes(sealed[HEADER_SIZE + 4 : HEADER_SIZE + 28]))
    assert len(seen) == 60


def test_the_batch_key_is_the_hkdf_of_data_key_and_salt() -> None:
    salt = bytes(16)
    witness = HKDF(SHA256(), 32, salt, b"tidelog sealed batch 1").derive(MASTER)

    sealed = bytearray(20)
    batch_key(MASTER, salt).encrypt_into(
        b"data", memoryview(sealed), nonce=bytes(12), associated_data=b"header"
    )

    assert AESGCM(witness).decrypt(bytes(12), bytes(sealed), b"header") == b"data"


def test_batches_of_old_data_keys_are_opened_after_a_rotation() -> None:
    keys = Keys()
    keys.rotate()
    cipher = keys.cipher()
    old, _ = sealed_by(cipher)
    keys.rotate()
    new, _ = sealed_by(cipher)

    assert (seal_id(old).key_id, seal_id(new).key_id) == (1, 2)
    for sealed in (old, new):
        header = parse_header(sealed)
        assert header is not None
        assert bytes(cipher.open(header, sealed)[1]) == bytes(stored_batch())


def test_a_wrong_or_missing_master_key_is_no_damage() -> None:
    keys = Keys()
    keys.rotate()
    cipher = keys.cipher()
    sealed, _ = sealed_by(cipher)
    header = parse_header(sealed)
    assert header is not None
    for masters in ((OTHER_MASTER,), ()):
        keys.ring.use(MasterKeys(masters), "this broker has no master key")
        for used in (cipher, keys.cipher()):
            with pytest.raises(KeyUnavailableError, match="master key"):
                used.open(header, sealed)
            with pytest.raises(KeyUnavailableError):
                sealed_by(used)
    keys.ring.use(MasterKeys([MASTER]))
    assert bytes(keys.cipher().open(header, sealed)[1]) == bytes(stored_batch())


def test_records_of_a_deleted_data_key_are_gone_for_ever() -> None:
    keys = Keys()
    keys.rotate()
    cipher = keys.cipher()
    sealed, _ = sealed_by(cipher)
    header = parse_header(sealed)
    assert header is not None
    keys.rotate()
    keys.destroy(1)

    opened_header, _ = cipher.open(header, sealed)

    assert opened_header.record_count == 0
    assert (opened_header.base_offset, opened_header.next_offset) == (1000, 1003)
    assert cipher.has_destroyed_keys
    assert cipher.is_gone(sealed)


def test_the_newest_data_key_cannot_be_deleted_and_ids_have_no_gaps() -> None:
    keys = Keys()
    keys.rotate()
    with pytest.raises(InvalidRequestError, match="data key 1 is in use"):
        keys.destroy(1)


def test_data_keys_are_wrapped_again_while_master_keys_change() -> None:
    keys = Keys()
    keys.rotate()
    sealed, _ = sealed_by(keys.cipher())
    header = parse_header(sealed)
    assert header is not None
    keys.ring.use(MasterKeys([OTHER_MASTER, MASTER]))
    keys.rewrap()

    keys.ring.use(MasterKeys([OTHER_MASTER]))

    assert keys.state.data_keys(bytes(range(16)))[1].master_id == master_id_of(OTHER_MASTER)
    assert bytes(keys.cipher().open(header, sealed)[1]) == bytes(stored_batch())


def test_a_broker_with_a_wrong_master_key_adds_no_data_key() -> None:
    keys = Keys()
    keys.rotate()
    keys.ring.use(MasterKeys([OTHER_MASTER]))

    with pytest.raises(KeyUnavailableError, match="give the broker that master key"):
        keys.rotate()

    keys.ring.use(MasterKeys([OTHER_MASTER, MASTER]))
    keys.rotate()
    assert keys.state.data_keys(TOPIC_ID)[2].master_id == master_id_of(OTHER_MASTER)


def test_a_key_file_is_read_and_never_shown() -> None:
    text = f"# keys\n\n{key_file(OTHER_MASTER, MASTER)}"
    masters = MasterKeys.parse(text, "keys")

    assert masters.ids == [master_id_of(OTHER_MASTER), master_id_of(MASTER)]
    assert masters.current_id == master_id_of(OTHER_MASTER)
    assert repr(masters) == f"MasterKeys({', '.join(masters.ids)})"


@pytest.mark.parametrize(
    "text", ["", "secret", "tidelog-master-1 c2VjcmV0", "tidelog-master-1 !!secret!!", "a b c"]
)
def test_a_malformed_key_file_is_refused_without_a_word_of_it(text: str) -> None:
    with pytest.raises(ConfigError, match=r"create") as caught:
        MasterKeys.parse(text, "the file")

    assert "secret" not in str(caught.value)
    assert "c2VjcmV0" not in str(caught.value)
