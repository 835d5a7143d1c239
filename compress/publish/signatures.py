"""Signatures of published models in the format of minisign, which others can check with that program too.

What is signed is a folder's digests.json, as digests.json.minisig beside it; the trusted comment, which is signed with
it, names the version and the folder, so that neither can be passed off as another. Needed: `cryptography`.
"""

import base64
import binascii
import hashlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compress.environment import require
from compress.errors import ModelError, UsageError
from compress.storage.file_names import expanded_user

SIGNATURE_SUFFIX = ".minisig"
MAX_SIGNATURE_BYTES = 4_096
TRUSTED_KEYS = "COMPRESS_TRUSTED_KEYS"
"""The environment variable with a file of public keys; where it is set, nothing else is opened from a place."""
SIGNING_KEY = "COMPRESS_SIGNING_KEY"
"""The environment variable with the file of the secret key that `compress publish` and recipes sign with."""
PASSWORD = "COMPRESS_SIGNING_PASSWORD"
"""The environment variable with the password of that file; without it the terminal is asked."""

PREHASHED, PLAIN = b"ED", b"Ed"
"""Algorithms of a signature: of the file's BLAKE2b, as minisign writes them by default, and of the file itself."""
COMMENT, TRUSTED = "untrusted comment: ", "trusted comment: "
SCRYPT = b"Sc"
MAX_SCRYPT_BYTES = 1 << 30


@dataclass(frozen=True)
class PublicKey:
    """A public key of minisign."""

    number: bytes
    point: bytes

    @property
    def name(self) -> str:
        """Its number as minisign shows it."""
        return self.number[::-1].hex().upper()

    def check(self, point_signature: bytes, content: bytes) -> bool:
        """Whether a signature over ``content`` is by this key."""
        require("cryptography", "zoo")
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.point).verify(point_signature, content)
        except (InvalidSignature, ValueError):
            return False
        return True


def read_keys(key: str) -> tuple[PublicKey, ...]:
    """Return the public keys of a file, one a line with any comments between, or the one that is given itself."""
    path = expanded_user(key)
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else [key]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{key} cannot be read as public keys: {error}.") from error
    keys = tuple(each for line in lines if (each := _public_key(line.strip())))
    if not keys:
        raise UsageError(
            f"{key} is neither a public key of minisign nor a file with one.",
            hint="a key is 56 characters that begin with RW; minisign -G writes a pair of them",
        )
    return keys


def _public_key(line: str) -> PublicKey | None:
    try:
        content = base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError):
        return None
    return PublicKey(content[2:10], content[10:]) if len(content) == 42 and content[:2] == PLAIN else None


def trusted_keys(key: str | None = None) -> tuple[PublicKey, ...]:
    """Return the keys one of which must have signed: those given, else those of the environment; empty: any."""
    named = key or os.environ.get(TRUSTED_KEYS)
    return read_keys(named) if named else ()


def check_signature(content: bytes, signature: bytes | None, keys: Sequence[PublicKey], what: str, names: str) -> str:
    """Refuse a digests.json that none of the keys signed as that of ``names``; return the trusted comment.

    Args:
        content: of digests.json.
        signature: of the file beside it; None without one.
        keys: of those who may sign.
        what: the folder, for messages.
        names: how the trusted comment must begin: `compress films@2 .`; empty where any will do.
    """
    if signature is None:
        raise ModelError(f"{what} is not signed, and a signature is asked for.", hint="compress publish --sign KEY")
    try:
        lines = signature.decode().splitlines()
        first, last = (base64.b64decode(lines[number], validate=True) for number in (1, 3))
        comment = lines[2].removeprefix(TRUSTED)
        is_line = lines[2].startswith(TRUSTED) and comment.replace("\t", " ").isprintable()
        well_formed = is_line and len(first) == 74 and len(last) == 64
    except (UnicodeDecodeError, binascii.Error, ValueError, IndexError):
        well_formed = False
    if not well_formed or first[:2] not in (PREHASHED, PLAIN):
        raise ModelError(f"the signature of {what} is none of minisign's.")
    signed = hashlib.blake2b(content).digest() if first[:2] == PREHASHED else content
    for key in keys:
        if key.number == first[2:10]:
            if not (key.check(first[10:], signed) and key.check(last, first[10:] + comment.encode())):
                raise ModelError(f"the signature of {what} does not fit: it, or what it signs, was changed.")
            if names and comment.partition("\t")[0] != names:
                raise ModelError(f"the signature of {what} is that of '{comment[:100]}', expected '{names}'.")
            return comment
    raise ModelError(f"{what} is signed by the key {first[2:10][::-1].hex().upper()}, which is not a trusted one.")


class Signer:
    """A secret key of minisign."""

    def __init__(self, path: Path) -> None:
        require("cryptography", "zoo")
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        try:
            lines = expanded_user(path).read_text(encoding="utf-8").splitlines()
            content = base64.b64decode(lines[1], validate=True)
        except OSError as error:
            raise UsageError(f"{path} cannot be read as a secret key: {error.strerror}.") from error
        except (UnicodeDecodeError, binascii.Error, ValueError, IndexError):
            content = b""
        if len(content) != 158 or content[:2] != PLAIN:
            raise UsageError(f"{path} is no secret key of minisign.", hint="minisign -G writes a pair of keys")
        secret = content[54:]
        if content[2:4] == SCRYPT:
            secret = _unlocked(content, path)
        self.number, seed, checksum = secret[:8], secret[8:40], secret[72:104]
        expected = hashlib.blake2b(PLAIN + secret[:72], digest_size=32).digest()
        if content[2:4] == SCRYPT and checksum != expected:
            raise UsageError(f"the password of {path} is another one.")
        self._key = Ed25519PrivateKey.from_private_bytes(seed)

    def sign(self, path: Path, about: str) -> None:
        """Write the signature of a file beside it; ``about`` is signed with it."""
        signature = self._key.sign(hashlib.blake2b(path.read_bytes()).digest())
        comment = f"{about}\ttimestamp:{int(time.time())}"
        both = self._key.sign(signature + comment.encode())
        lines = (
            f"{COMMENT}signature by compress",
            base64.b64encode(PREHASHED + self.number + signature).decode(),
            f"{TRUSTED}{comment}",
            base64.b64encode(both).decode(),
        )
        path.with_name(path.name + SIGNATURE_SUFFIX).write_text("\n".join(lines) + "\n", encoding="utf-8")


def find_signer(key: str | None = None) -> Signer | None:
    """Return the signer of the secret key that is given, else of the environment's; None without one."""
    named = key or os.environ.get(SIGNING_KEY)
    return Signer(Path(named)) if named else None


def _unlocked(content: bytes, path: Path) -> bytes:
    """Return the secret part of a key file with a password."""
    password = os.environ.get(PASSWORD)
    if password is None:
        if not sys.stdin.isatty():
            raise UsageError(f"{path} has a password, and none was given.", hint=f"set {PASSWORD}")
        from getpass import getpass

        password = getpass(f"password of {path}: ")
    salt, operations, memory = content[6:38], *(int.from_bytes(content[at : at + 8], "little") for at in (38, 46))
    cost, blocks, lanes = _scrypt_settings(operations, memory)
    if 128 * cost * blocks * lanes > MAX_SCRYPT_BYTES:
        raise UsageError(f"{path} asks for more memory than a key of minisign does.")
    stream = hashlib.scrypt(
        password.encode(), salt=salt, n=cost, r=blocks, p=lanes, maxmem=2 * MAX_SCRYPT_BYTES - 2, dklen=104
    )
    return bytes(one ^ other for one, other in zip(content[54:], stream, strict=True))


def _scrypt_settings(operations: int, memory: int) -> tuple[int, int, int]:
    """Return scrypt's N, r and p as libsodium derives them from limits of operations and memory."""
    operations, blocks = max(operations, 32_768), 8
    if operations < memory // 32:
        return _power_below(operations // (blocks * 4)), blocks, 1
    cost = _power_below(memory // (blocks * 128))
    return cost, blocks, min(operations // 4 // cost, 0x3FFFFFFF) // blocks


def _power_below(most: int) -> int:
    """Return the smallest power of two that is more than half of ``most``, as libsodium rounds it."""
    power: int = 1
    while 2**power <= most // 2:
        power += 1
    return 1 << power
