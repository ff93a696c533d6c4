"""Signatures: a model that was signed is loaded, and every other one is refused in a sentence."""

import base64
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import Run, put
from tests.models.test_models import SETS
from treelabel import load_model, make_model, write
from treelabel.core.errors import TreelabelError
from treelabel.models.persistence.signing import new_key, sign_model

pytest.importorskip("cryptography")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and keys of two people."""
    folder = tmp_path_factory.mktemp("made")
    make_model("nothing").fit(SETS["leaf"]).save(folder / "model")
    for name in ("ours", "theirs"):
        new_key(folder / name)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """The same, with the model signed by us."""
    copy = tmp_path / "work"
    shutil.copytree(made, copy)
    sign_model(copy / "model", copy / "ours.pem")
    return copy


def refused(folder: Path, match: str, key: str | Path = "ours.pub.pem") -> None:
    with pytest.raises(TreelabelError, match=match) as error:
        load_model(folder / "model", require_signature=folder / key)
    assert "\n" not in str(error.value)


# What is taken


def test_a_signed_model_is_loaded(folder: Path) -> None:
    loaded = load_model(folder / "model", require_signature=folder / "ours.pub.pem")
    assert loaded.predict(["a dog"]) == [[]]
    assert load_model(folder / "model").predict(["a dog"]) == [[]]


def test_what_is_written(folder: Path) -> None:
    stored = json.loads((folder / "model" / "signature.json").read_text())
    assert {name: stored[name] for name in ("kind", "version", "algorithm")} == {
        "kind": "treelabel model signature",
        "version": 1,
        "algorithm": "ed25519",
    }
    assert stored["key"] == sign_model(folder / "model", folder / "ours.pem")
    assert len(stored["key"]) == 2 * 32
    assert len(base64.b64decode(stored["signature"])) == 64
    assert "signature.json" not in json.loads((folder / "model" / "model.json").read_text())["sha256"]
    assert not [file for file in (folder / "model").iterdir() if file.name.startswith(".")]


def test_the_signature_is_what_others_would_compute(folder: Path) -> None:
    """Check it with nothing of ours: the message is written in SECURITY.md."""
    import hashlib

    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    stored = json.loads((folder / "model" / "signature.json").read_text())
    key: Any = load_pem_public_key((folder / "ours.pub.pem").read_bytes())
    signed = hashlib.sha256((folder / "model" / "model.json").read_bytes()).digest()
    key.verify(base64.b64decode(stored["signature"]), b"treelabel model signature v1\0" + signed)
    assert stored["key"] == hashlib.sha256(key.public_bytes_raw()).hexdigest()


def test_several_keys_may_be_trusted(folder: Path) -> None:
    both = put(folder, "both", (folder / "theirs.pub.pem").read_bytes() + (folder / "ours.pub.pem").read_bytes())
    load_model(folder / "model", require_signature=both)
    # Private keys that lie in a folder are not looked at.
    load_model(folder / "model", require_signature=folder)
    assert len(list(folder.glob("*.pem"))) == 4


def test_saving_again_needs_signing_again(folder: Path) -> None:
    make_model("most_frequent").fit(SETS["leaf"]).save(folder / "model", overwrite=True)
    refused(folder, "the model is not signed, and a signature is required")
    sign_model(folder / "model", folder / "ours.pem")
    load_model(folder / "model", require_signature=folder / "ours.pub.pem")


def test_an_operator_requires_signatures_of_all_models(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREELABEL_REQUIRE_SIGNATURE", str(folder / "ours.pub.pem"))
    load_model(folder / "model")
    monkeypatch.setenv("TREELABEL_REQUIRE_SIGNATURE", str(folder / "theirs.pub.pem"))
    with pytest.raises(TreelabelError, match="signed with the key"):
        load_model(folder / "model")
    load_model(folder / "model", require_signature=folder / "ours.pub.pem")
    (folder / "model" / "signature.json").unlink()
    monkeypatch.setenv("TREELABEL_REQUIRE_SIGNATURE", "")
    with pytest.raises(TreelabelError, match="TREELABEL_REQUIRE_SIGNATURE is '', which names no key"):
        load_model(folder / "model")
    monkeypatch.delenv("TREELABEL_REQUIRE_SIGNATURE")
    load_model(folder / "model")


@pytest.mark.parametrize("key", ["", ".", "./", Path("")])
def test_an_empty_name_does_not_trust_the_keys_of_the_working_folder(
    folder: Path, key: str | Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(TreelabelError, match="which names no key; expected a file of public keys"):
        load_model(folder / "model", require_signature=key)
    put(folder, "new.csv", "text\na\n")
    done = run("predict", "model", "new.csv", "--require-signature", str(key))
    assert done.code == 2
    assert "which names no key" in done.err


# What is refused


def test_an_unsigned_model(folder: Path) -> None:
    (folder / "model" / "signature.json").unlink()
    refused(folder, "model: the model is not signed, and a signature is required; get a signed one, or sign it with")


def test_another_key(folder: Path) -> None:
    refused(
        folder, "signed with the key [0-9a-f]{64}, expected one of .*theirs.pub.pem: '[0-9a-f]{64}'", "theirs.pub.pem"
    )


def test_every_altered_file(folder: Path) -> None:
    files = sorted(file for file in (folder / "model").iterdir() if file.name != "signature.json")
    assert [file.name for file in files] == ["README.md", "arrays.npz", "hierarchy.json", "model.json", "profile.npz"]
    for file in files:
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        is_signed = file.name == "model.json"
        refused(folder, "the signature is not one of this model.json" if is_signed else "is not what was saved")
        file.unlink()
        refused(folder, "no model folder" if is_signed else f"incomplete: {file.name} is missing")
        file.write_bytes(whole)
    load_model(folder / "model", require_signature=folder / "ours.pub.pem")


def test_whitespace_in_model_json_counts(folder: Path) -> None:
    file = folder / "model" / "model.json"
    file.write_bytes(file.read_bytes() + b"\n")
    refused(folder, "the signature is not one of this model.json; the model was altered after it was signed")


def test_a_file_beside_those_that_are_signed(folder: Path) -> None:
    put(folder / "model", "0.model.safetensors", b"")
    refused(folder, "holds files that are not the model's, .*: '0.model.safetensors'; remove them")
    with pytest.raises(TreelabelError, match="holds files that are not the model's"):
        sign_model(folder / "model", folder / "ours.pem")


def test_the_signature_of_another_model(folder: Path) -> None:
    make_model("most_frequent").fit(SETS["leaf"]).save(folder / "other")
    sign_model(folder / "other", folder / "ours.pem")
    shutil.copyfile(folder / "other" / "signature.json", folder / "model" / "signature.json")
    refused(folder, "or the signature is another model's")


def test_a_key_of_ours_claimed_for_a_signature_of_theirs(folder: Path) -> None:
    ours = json.loads((folder / "model" / "signature.json").read_text())
    sign_model(folder / "model", folder / "theirs.pem")
    file = folder / "model" / "signature.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"key": ours["key"]}))
    refused(folder, "the signature is not one of this model.json")


SIGNATURES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a list": (lambda stored: [stored], "no signature of a treelabel model"),
    "another kind": (lambda stored: stored | {"kind": "treelabel model"}, "no signature of a treelabel model"),
    "a newer version": (lambda stored: stored | {"version": 2}, "a signature of version 2 by 'ed25519'"),
    "another algorithm": (lambda stored: stored | {"algorithm": "none"}, "a signature of version 1 by 'none'"),
    "no key": (lambda stored: stored | {"key": None}, "'key' or 'signature' is missing"),
    "no signature": (lambda stored: stored | {"signature": 7}, "'key' or 'signature' is missing"),
    "no base64": (lambda stored: stored | {"signature": "§§"}, "'key' or 'signature' is missing"),
    "an empty signature": (lambda stored: stored | {"signature": ""}, "the signature is not one of this model.json"),
    "a short signature": (lambda stored: stored | {"signature": "AAAA"}, "the signature is not one of this model.json"),
}


@pytest.mark.parametrize("change", SIGNATURES)
def test_a_changed_signature(folder: Path, change: str) -> None:
    how, match = SIGNATURES[change]
    file = folder / "model" / "signature.json"
    file.write_text(json.dumps(how(json.loads(file.read_text()))))
    refused(folder, match)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_a_signature_that_is_garbage(folder: Path, content: bytes) -> None:
    put(folder / "model", "signature.json", content)
    refused(folder, "signature.json: (damaged: no JSON|no signature of a treelabel model)")


def test_a_signature_that_is_no_file(folder: Path) -> None:
    file = folder / "model" / "signature.json"
    put(folder / "model", "signature.json", b" " * (1 << 20) + b"{}")
    refused(folder, "more than 1,048,576 bytes")
    file.unlink()
    os.mkfifo(file)
    refused(folder, "is no ordinary file")
    file.unlink()
    file.symlink_to("nowhere")
    refused(folder, "no such file")


def test_nothing_is_parsed_before_it_is_verified(folder: Path) -> None:
    put(folder / "model", "model.json", b"{ no JSON")
    refused(folder, "the signature is not one of this model.json")


def test_what_was_verified_is_what_is_parsed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """model.json is read once: who exchanges it after that gains nothing."""
    reads, real = [], Path.read_bytes

    def counted(path: Path) -> bytes:
        if path.name == "model.json":
            reads.append(path)
        return real(path)

    def never(path: Path, *_: Any, **__: Any) -> str:
        assert path.name != "model.json"
        return real(path).decode()

    monkeypatch.setattr(Path, "read_bytes", counted)
    monkeypatch.setattr(Path, "read_text", never)
    load_model(folder / "model", require_signature=folder / "ours.pub.pem")
    assert len(reads) == 1


# Keys


def other_keys() -> dict[str, Any]:
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa

    return {
        "RSA": rsa.generate_private_key(65537, 2048),
        "Ed448": ed448.Ed448PrivateKey.generate(),
        "EC": ec.generate_private_key(ec.SECP256R1()),
    }


def test_keys_of_another_kind(folder: Path) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    for kind, key in other_keys().items():
        put(folder, "k.pem", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        put(folder, "k.pub", public)
        with pytest.raises(TreelabelError, match=rf"a private key of another kind \({kind}\), expected Ed25519"):
            sign_model(folder / "model", folder / "k.pem")
        refused(folder, rf"a public key of another kind \({kind}\), expected Ed25519", "k.pub")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "no public key in PEM"),
        (b"hello", "no public key in PEM"),
        (b"\xff" * 100, "no public key in PEM"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "a public key in it cannot be read"),
        (b"-----BEGIN PUBLIC KEY-----\n", "no public key in PEM"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "a private key, expected a public one"),
    ],
)
def test_a_public_key_that_is_none(folder: Path, content: bytes, match: str) -> None:
    put(folder, "k.pub", content)
    refused(folder, match, "k.pub")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "no private key in PEM"),
        (b"\xff" * 100, "no private key in PEM"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "cannot be read: the file is damaged"),
    ],
)
def test_a_private_key_that_is_none(folder: Path, content: bytes, match: str) -> None:
    with pytest.raises(TreelabelError, match=match):
        sign_model(folder / "model", put(folder, "k.pem", content))


def test_missing_files(folder: Path, tmp_path: Path) -> None:
    refused(folder, "nowhere.pem: no such file", "nowhere.pem")
    refused(folder, "no public keys in this folder", tmp_path / "work" / "model")
    with pytest.raises(TreelabelError, match=r"nowhere\.pem: no such file"):
        sign_model(folder / "model", folder / "nowhere.pem")
    for place in (folder / "nowhere", folder, folder / "ours.pem"):
        with pytest.raises(TreelabelError, match="no model folder"):
            sign_model(place, folder / "ours.pem")


def test_an_altered_model_is_not_signed(folder: Path) -> None:
    put(folder / "model", "hierarchy.json", b"{}")
    with pytest.raises(TreelabelError, match=r"hierarchy\.json is not what was saved, and such a model is not signed"):
        sign_model(folder / "model", folder / "ours.pem")
    put(folder / "model", "model.json", b"{}")
    with pytest.raises(TreelabelError, match="it does not list the files of a model"):
        sign_model(folder / "model", folder / "ours.pem")


def test_a_new_key_is_private_and_replaces_nothing(tmp_path: Path) -> None:
    private, public = new_key(tmp_path / "k")
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    before = private.read_bytes(), public.read_bytes()
    with pytest.raises(TreelabelError, match=r"k\.pem: is there already, and keys are not replaced"):
        new_key(tmp_path / "k")
    private.unlink()
    with pytest.raises(TreelabelError, match=r"k\.pub\.pem: is there already"):
        new_key(tmp_path / "k")
    assert (public.read_bytes(), private.exists()) == (before[1], False)
    with pytest.raises(TreelabelError, match="cannot be written: No such file or directory"):
        new_key(tmp_path / "nowhere" / "k")


def test_half_a_pair_is_never_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync
    calls = []

    def failing(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="No space left"):
        new_key(tmp_path / "k")
    assert list(tmp_path.iterdir()) == []


def test_a_passphrase(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # An open key is read whatever the passphrase of others is.
    monkeypatch.setenv("TREELABEL_KEY_PASSPHRASE", "correct horse")
    sign_model(folder / "model", folder / "ours.pem")
    private, public = new_key(folder / "locked")
    assert b"ENCRYPTED" in private.read_bytes()
    sign_model(folder / "model", private)
    load_model(folder / "model", require_signature=public)
    monkeypatch.setenv("TREELABEL_KEY_PASSPHRASE", "wrong")
    with pytest.raises(TreelabelError, match="TREELABEL_KEY_PASSPHRASE is not its passphrase, or the file is damaged"):
        sign_model(folder / "model", private)
    monkeypatch.delenv("TREELABEL_KEY_PASSPHRASE")
    with pytest.raises(TreelabelError, match="the key is encrypted; set TREELABEL_KEY_PASSPHRASE to its passphrase"):
        sign_model(folder / "model", private)


def test_without_the_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    needs = r'needs cryptography: pip install "treelabel\[sign\]"'
    refused(folder, f"checking a signature {needs}")
    with pytest.raises(TreelabelError, match=f"signing a model {needs}"):
        sign_model(folder / "model", folder / "ours.pem")
    with pytest.raises(TreelabelError, match=f"making a key {needs}"):
        new_key(folder / "k")
    load_model(folder / "model")


# From a shell


def test_a_walk(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(SETS["leaf"], tmp_path / "train.jsonl")
    assert run("fit", "train.jsonl", "-o", "model").code == 0
    made = run("sign", "--new-key", "ours")
    assert (made.code, made.err) == (0, "next: treelabel sign MODEL --key ours.pem\n")
    assert [line.partition(":")[0] for line in made.out.splitlines()] == ["ours.pem", "ours.pub.pem"]
    run("sign", "--new-key", "theirs")
    commands: list[list[str]] = [
        ["score", "model", "train.jsonl", "-o", "scores.npz"],
        ["predict", "model", "train.jsonl", "-o", "found.jsonl"],
        ["explain", "model", "a dog barks"],
        ["export", "model", "-o", "graph"],
    ]
    for command in commands:
        ended = run(*command, "--require-signature", "ours.pub.pem")
        assert (ended.code, ended.out, len(ended.err.splitlines())) == (2, "", 1)
        assert ended.err.startswith("treelabel: model: the model is not signed, and a signature is required")
    signed = run("sign", "model", "--key", "ours.pem")
    assert signed.out.startswith("model: signed with the key ")
    for command in commands:
        ended = run(*command, "--require-signature", "theirs.pub.pem")
        assert (ended.code, ended.out, len(ended.err.splitlines())) == (2, "", 1)
        assert "model: signed with the key" in ended.err
        ended = run(*command, "--require-signature", "ours.pub.pem")
        assert (ended.code, "no network" in ended.err) == ((2, True) if command[0] == "export" else (0, False))
    monkeypatch.setenv("TREELABEL_REQUIRE_SIGNATURE", "theirs.pub.pem")
    assert run("predict", "model", "train.jsonl").code == 2


@pytest.mark.parametrize(
    "arguments",
    [[], ["model"], ["--key", "k.pem"], ["model", "--new-key", "k"], ["model", "--key", "k", "--new-key", "k"]],
)
def test_what_sign_takes(run: Run, arguments: list[str]) -> None:
    ended = run("sign", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert "expected either MODEL and --key FILE, to sign a model, or --new-key NAME, to make keys" in ended.err
