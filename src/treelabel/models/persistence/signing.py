"""Signatures of model folders: who made a model, which checksums alone cannot say.

`signature.json` holds an Ed25519 signature of the hash of model.json, which lists the hash of every other file, so
that it covers the folder. The cryptography is that of the package `cryptography` (extra `sign`).
"""

import base64
import hashlib
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treelabel.core.atomic_output import atomic_file
from treelabel.core.errors import TreelabelError, require_extra, some
from treelabel.core.inputs import file_sha256

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

# The one file of a model folder that model.json does not list.
SIGNATURE = "signature.json"
KIND, VERSION, ALGORITHM = "treelabel model signature", 1, "ed25519"
# What is signed begins with this, so that a signature made for another purpose never fits.
_DOMAIN = b"treelabel model signature v1\0"
# Operators set this to a file or folder of public keys: then every model that is loaded must be signed.
REQUIRED = "TREELABEL_REQUIRE_SIGNATURE"
PASSPHRASE = "TREELABEL_KEY_PASSPHRASE"
# Keys and signatures take some hundred bytes.
_MOST_BYTES = 1 << 20
_PUBLIC = re.compile(rb"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", re.DOTALL)


def new_key(name: str | Path) -> tuple[Path, Path]:
    """Make a pair of keys: NAME.pem to sign with, and NAME.pub.pem for those who check.

    The private key is readable for its owner only, and encrypted if TREELABEL_KEY_PASSPHRASE is set. Files that are
    there already are never replaced.
    """
    with require_extra("sign", "making a key"):
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    passphrase = _passphrase()
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        encryption = serialization.BestAvailableEncryption(passphrase)
    made = Ed25519PrivateKey.generate()
    private = made.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    public = made.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    files = Path(f"{name}.pem"), Path(f"{name}.pub.pem")
    _write_new(files[0], private, 0o600)
    try:
        _write_new(files[1], public, 0o644)
    except BaseException:
        files[0].unlink()
        raise
    return files


def sign_model(folder: str | Path, key: str | Path) -> str:
    """Sign a model folder: write its signature.json, in the place of one that is there.

    Parameters
    ----------
    folder
        A model folder. It is refused where a file is not what was saved, or is not one of the model's.
    key
        A private Ed25519 key in PEM (PKCS8); TREELABEL_KEY_PASSPHRASE opens one that is encrypted.

    Returns
    -------
    The fingerprint of the key: the sha256 of the 32 bytes of the public key, in hexadecimal digits.
    """
    where = Path(folder)
    private = _private_key(Path(key))
    try:
        content = (where / "model.json").read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise TreelabelError(f"{where}: no model folder; expected one that 'treelabel fit' wrote") from None
    for name, digest in _listed_files(where, content).items():
        if not (where / name).is_file() or file_sha256(where / name) != digest:
            raise TreelabelError(f"{where}: {name} is not what was saved, and such a model is not signed")
    fingerprint = _fingerprint(private.public_key())
    signature = base64.b64encode(private.sign(_message(content))).decode()
    stored = {"kind": KIND, "version": VERSION, "algorithm": ALGORITHM, "key": fingerprint, "signature": signature}
    with atomic_file(where / SIGNATURE) as temporary:
        temporary.write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
    return fingerprint


def check_signature(folder: Path, content: bytes, required: str | Path | None) -> None:
    """Refuse a model that is not signed with a trusted key, where that is required.

    Parameters
    ----------
    folder
        The model folder.
    content
        The bytes of its model.json; the caller must parse these very bytes.
    required
        A file with one or more public keys in PEM, or a folder of `*.pub.pem`; any of the keys will do. Without it,
        TREELABEL_REQUIRE_SIGNATURE; where neither is given, no signature is looked at. An empty one is refused, as is
        the working folder by the name ".", which is what `Path("")` is: anybody may have put a key there.
    """
    trusted = os.environ.get(REQUIRED) if required is None else required
    if trusted is None:
        return
    if Path(trusted) == Path():
        source = f"{REQUIRED} is" if required is None else "the key of a required signature is"
        raise TreelabelError(
            f"{source} {str(trusted)!r}, which names no key; expected a file of public keys or a folder of "
            "NAME.pub.pem, by its name, and for no check at all leave it out"
        )
    with require_extra("sign", "checking a signature"):
        from cryptography.exceptions import InvalidSignature

    keys = _public_keys(Path(trusted))
    fingerprint, signature = _stored_signature(folder)
    if fingerprint not in keys:
        raise TreelabelError(
            f"{folder}: signed with the key {fingerprint}, expected one of {trusted}: {some(list(keys), 3)}; do not "
            "use the model unless you trust who made it"
        )
    try:
        keys[fingerprint].verify(signature, _message(content))
    except InvalidSignature:
        raise TreelabelError(
            f"{folder}: the signature is not one of this model.json; the model was altered after it was signed, or "
            "the signature is another model's: get the model again from who signed it"
        ) from None
    _listed_files(folder, content)


def _message(content: bytes) -> bytes:
    return _DOMAIN + hashlib.sha256(content).digest()


def _listed_files(folder: Path, content: bytes) -> dict[str, str]:
    """Return the files that model.json lists with their hashes; refuse a folder that holds others."""
    try:
        listed = json.loads(content)["sha256"]
        names = {name: str(digest) for name, digest in listed.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise TreelabelError(f"{folder / 'model.json'}: damaged: it does not list the files of a model") from None
    result = {entry.name for entry in folder.iterdir()}
    missing = sorted(name for name in names if name not in result)
    if missing:
        raise TreelabelError(f"{folder}: the model is incomplete: {missing[0]} is missing")
    more = sorted(result - {"model.json", SIGNATURE, *names})
    if more:
        raise TreelabelError(
            f"{folder}: holds files that are not the model's, and that a signature does not cover: {some(more)}; "
            "remove them"
        )
    return names


def _stored_signature(folder: Path) -> tuple[str, bytes]:
    """Read signature.json: the fingerprint of the key, and the signature."""
    file = folder / SIGNATURE
    if not os.path.lexists(file):
        raise TreelabelError(
            f"{folder}: the model is not signed, and a signature is required; get a signed one, or sign it with "
            "'treelabel sign' if you trust who made it"
        )
    content = _read_small(file)
    try:
        stored = json.loads(content)
    except (ValueError, RecursionError):
        raise TreelabelError(f"{file}: damaged: no JSON; get the model again, or sign it again") from None
    if not isinstance(stored, dict) or stored.get("kind") != KIND:
        raise TreelabelError(f"{file}: no signature of a treelabel model; get the model again, or sign it again")
    if (stored.get("version"), stored.get("algorithm")) != (VERSION, ALGORITHM):
        raise TreelabelError(
            f"{file}: a signature of version {stored.get('version')!r} by {stored.get('algorithm')!r}, but this "
            f"treelabel checks version {VERSION} by {ALGORITHM!r}"
        )
    with suppress(ValueError):
        if isinstance(stored.get("key"), str) and isinstance(stored.get("signature"), str):
            return stored["key"], base64.b64decode(stored["signature"], validate=True)
    raise TreelabelError(f"{file}: damaged: 'key' or 'signature' is missing or of the wrong kind; sign the model again")


def _public_keys(source: Path) -> "dict[str, Ed25519PublicKey]":
    """Read the public keys of a file or a folder, by their fingerprints."""
    files = sorted(source.glob("*.pub.pem")) if source.is_dir() else [source]
    if not files:
        raise TreelabelError(f"{source}: no public keys in this folder; expected files called NAME.pub.pem")
    keys = [key for file in files for key in _keys_of_file(file)]
    return {_fingerprint(key): key for key in keys}


def _keys_of_file(file: Path) -> "list[Ed25519PublicKey]":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    content = _read_small(file)
    if b"PRIVATE KEY-----" in content:
        raise TreelabelError(
            f"{file}: a private key, expected a public one (NAME.pub.pem); keep private keys where models are signed"
        )
    result = []
    for block in _PUBLIC.findall(content):
        try:
            key: Any = load_pem_public_key(block)
        except (ValueError, UnsupportedAlgorithm):
            raise TreelabelError(f"{file}: damaged: a public key in it cannot be read") from None
        if not isinstance(key, Ed25519PublicKey):
            raise TreelabelError(f"{file}: a public key of another kind ({_kind(key)}), expected Ed25519")
        result.append(key)
    if not result:
        raise TreelabelError(f"{file}: no public key in PEM; expected what 'treelabel sign --new-key' wrote")
    return result


def _private_key(file: Path) -> "Ed25519PrivateKey":
    with require_extra("sign", "signing a model"):
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content = _read_small(file)
    if b"PRIVATE KEY-----" not in content:
        raise TreelabelError(f"{file}: no private key in PEM; expected what 'treelabel sign --new-key' wrote")
    is_encrypted = b"ENCRYPTED" in content
    passphrase = _passphrase() if is_encrypted else None
    if is_encrypted and passphrase is None:
        raise TreelabelError(f"{file}: the key is encrypted; set {PASSPHRASE} to its passphrase")
    try:
        key: Any = load_pem_private_key(content, passphrase)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        cause = f"{PASSPHRASE} is not its passphrase, or the file is" if is_encrypted else "the file is"
        raise TreelabelError(f"{file}: the private key cannot be read: {cause} damaged") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise TreelabelError(f"{file}: a private key of another kind ({_kind(key)}), expected Ed25519")
    return key


def _passphrase() -> bytes | None:
    value = os.environ.get(PASSPHRASE)
    return value.encode("utf-8", "surrogateescape") if value else None


def _fingerprint(key: "Ed25519PublicKey") -> str:
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()


def _kind(key: object) -> str:
    """Name the kind of a key: those of `cryptography` are classes such as RSAPublicKey.

    >>> _kind(type("_RSAPublicKey", (), {})())
    'RSA'
    """
    return re.sub(r"^_|(Public|Private)Key$", "", type(key).__name__)


def _read_small(file: Path) -> bytes:
    """Read a key or a signature; what is no file, or far too large, is refused."""
    if not file.exists():
        raise TreelabelError(f"{file}: no such file")
    if not file.is_file():
        raise TreelabelError(f"{file}: is no ordinary file, expected a small text file")
    with file.open("rb") as stream:
        content = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise TreelabelError(f"{file}: more than {_MOST_BYTES:,} bytes, expected a small text file")
    return content


def _write_new(file: Path, content: bytes, mode: int) -> None:
    """Write a file that is not there yet; nothing of it is left where that fails."""
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise TreelabelError(f"{file}: is there already, and keys are not replaced; choose another name") from None
    except OSError as error:
        raise TreelabelError(f"{file}: cannot be written: {error.strerror}") from error
    try:
        with open(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        file.unlink()
        raise
