"""Damage done to files of every kind by a seed: their bytes and text, what is packed in them, and bombs.

What knows the structure of model folders, score files and tuned rules is in `tests.fuzz`; here is the rest, and the
choice between the two. Every function takes a random generator, so that a seed is a reproducer.
"""

import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests import fuzz
from treelabel.core.inputs import suffixes
from treelabel.hierarchy import Hierarchy, hierarchy_from_json, hierarchy_to_json

Rng = np.random.Generator

# What has no business in a text, or is hard to read: ends of line, marks, half characters, terminal codes.
NASTY = (
    *(b"\0", b"\r", b"\n", b"\r\n", b"\x7f", b"\x1b[2J\x1b]0;title\x07", b"\xc2\x9b"),
    *(b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\\u0000", b"\\ud800"),
    *(letter.encode() for letter in "\ufeff\u202e\u2028"),
    *(b'"', b"'", b"\\", b",", b"\t", b"{", b"[", b"]", b"}", b":", b"#"),
    *(b" > ", b"__label__", b"=1+1", b"NaN", b"-Infinity", b"null", b"A" * 70_000),
)
NUMBERS = (
    *(b"-1", b"0", b"0.5", b"1e5", b"1e400", b"-1e400", b"1e-400", b"true", b"\xd9\xa3"),
    *(b"2147483648", b"-2147483649", b"9223372036854775808", b"99999999999999999999999", b"9" * 5000),
)
DEEP = 100_000
# How often a packed file becomes a bomb, which takes a second to read.
BOMBS = 0.02
# How often a file of known structure is damaged as bytes all the same.
PLAIN = 0.25


# Bytes


def flipped(rng: Rng, data: bytes) -> bytes:
    """Change one to eight bits."""
    found = bytearray(data)
    for place in rng.integers(0, len(data), rng.integers(1, 9)):
        found[place] ^= 1 << int(rng.integers(8))
    return bytes(found)


def cut_short(rng: Rng, data: bytes) -> bytes:
    """Leave only the beginning, or nothing."""
    return data[: int(rng.integers(0, len(data)))]


def without_part(rng: Rng, data: bytes) -> bytes:
    """Take out a part."""
    start, stop = sorted(rng.integers(0, len(data) + 1, 2).tolist())
    return data[:start] + data[stop:]


def doubled_part(rng: Rng, data: bytes) -> bytes:
    """Repeat a part somewhere else."""
    start, stop = sorted(rng.integers(0, len(data) + 1, 2).tolist())
    place = int(rng.integers(0, len(data) + 1))
    return data[:place] + data[start:stop] + data[place:]


def swapped_parts(rng: Rng, data: bytes) -> bytes:
    """Let two parts change places."""
    first, second, third = sorted(rng.integers(0, len(data) + 1, 3).tolist())
    return data[:first] + data[second:third] + data[first:second] + data[third:]


def with_nasty(rng: Rng, data: bytes) -> bytes:
    """Insert what has no business there, once or a few times."""
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(0, len(data) + 1))
        data = data[:place] + NASTY[rng.integers(len(NASTY))] + data[place:]
    return data


def with_odd_number(rng: Rng, data: bytes) -> bytes:
    """Put an odd number in the place of one that is there, or at the beginning."""
    places = [at for at, byte in enumerate(data) if 48 <= byte <= 57] or [0]
    place = places[rng.integers(len(places))]
    stop = place
    while stop < len(data) and 48 <= data[stop] <= 57:
        stop += 1
    return data[:place] + NUMBERS[rng.integers(len(NUMBERS))] + data[stop:]


def with_deep_nesting(rng: Rng, data: bytes) -> bytes:
    """Insert brackets that open many levels of JSON."""
    place = int(rng.integers(0, len(data) + 1))
    opening, closing = ((b"[", b"]"), (b'{"a":', b"}"))[rng.integers(2)]
    deep = DEEP // int(rng.choice([1, 100, 500]))
    return data[:place] + opening * deep + b"1" + closing * deep + data[place:]


def with_other_lines(rng: Rng, data: bytes) -> bytes:
    """Shuffle, repeat or leave out lines, or end them in another way."""
    lines = data.split(b"\n")
    match rng.integers(4):
        case 0:
            return b"\n".join([lines[at] for at in rng.permutation(len(lines))])
        case 1:
            return b"\n".join(lines[: rng.integers(1, len(lines) + 1)] * 3)
        case 2:
            return b"\n".join(line for line in lines if rng.random() < 0.7)
    return data.replace(b"\n", (b"\r", b"\r\n", b"\n\r", b"\x0b", b"\xe2\x80\xa8")[rng.integers(5)])


MUTATORS: tuple[Callable[[Rng, bytes], bytes], ...] = (
    flipped,
    cut_short,
    without_part,
    doubled_part,
    swapped_parts,
    with_nasty,
    with_odd_number,
    with_deep_nesting,
    with_other_lines,
)


def mutated_bytes(rng: Rng, data: bytes) -> tuple[str, bytes]:
    """Damage bytes in one to three ways of MUTATORS; say in which."""
    told = []
    for _ in range(int(rng.choice([1, 1, 2, 3]))):
        if not data:
            break
        mutate = MUTATORS[rng.integers(len(MUTATORS))]
        told.append(mutate.__name__)
        data = mutate(rng, data)
    return " and ".join(told), data


# Packed files


def mutated_packed(rng: Rng, data: bytes, compression: str) -> tuple[str, bytes]:
    """Damage what is packed in a file, or the packed bytes; or let it be a bomb."""
    if rng.random() < BOMBS:
        return "300 MB of packed zeros", bomb(compression)
    if rng.random() < 0.3:
        return mutated_bytes(rng, data)
    with pa.CompressedInputStream(pa.BufferReader(data), compression) as stream:
        told, inside = mutated_bytes(rng, stream.read())
    return told, packed([inside], compression)


def packed(parts: list[bytes], compression: str) -> bytes:
    """Pack bytes."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, compression) as stream:
        for part in parts:
            stream.write(part)
    found: bytes = sink.getvalue().to_pybytes()
    return found


@cache
def bomb(compression: str) -> bytes:
    """Pack 300 MB of zeros."""
    return packed([bytes(1_000_000)] * 300, compression)


def npz_bomb(rng: Rng, file: Path) -> str:
    """Let an array of an .npz file be huge: by zeros that are packed well, or by its header alone."""
    with np.load(file, allow_pickle=False) as stored:
        arrays: dict[str, Any] = dict(stored) or {"more": np.zeros(1)}
    name = sorted(arrays)[rng.integers(len(arrays))]
    if rng.random() < 0.5:
        np.savez_compressed(file, **{**arrays, name: np.zeros(50_000_000)})
        return f"{name}: 400 MB of packed zeros"
    with zipfile.ZipFile(file, "w") as archive:
        for each, array in arrays.items():
            member = io.BytesIO()
            if each == name:
                shape = (10 ** int(rng.choice([9, 12, 18])),)
                header = {"descr": "<f8", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(member, header)
                member.write(bytes(64))
            else:
                np.save(member, array, allow_pickle=False)
            archive.writestr(f"{each}.npy", member.getvalue())
    return f"{name}: a header that promises too much"


# Everything


def mutated_file(rng: Rng, source: Path, target: Path) -> str:
    """Write a mutant of a data file, taxonomy, prediction file, score file or tuned rule; say what was done."""
    ending, compression = suffixes(source)
    is_plain = rng.random() < PLAIN
    if compression is not None:
        told, data = mutated_packed(rng, source.read_bytes(), compression)
    elif ending == ".npz" and rng.random() < BOMBS:
        shutil.copy(source, target)
        return npz_bomb(rng, target)
    elif ending == ".npz" and not is_plain:
        return fuzz.mutate_npz(source, target, rng)
    elif ending == ".parquet" and source.name.startswith("scores") and not is_plain:
        return fuzz.mutate_parquet(source, target, rng)
    elif ending == ".json" and not is_plain:
        told, data = "JSON values", fuzz.dumps(fuzz.mutate_json(json.loads(source.read_bytes()), rng))
    else:
        told, data = mutated_bytes(rng, source.read_bytes())
    target.write_bytes(data)
    return told


def mutated_model(rng: Rng, source: Path, target: Path) -> str:
    """Write a mutant of a model folder whose checksums are right; say what was done."""
    chance = rng.random()
    if chance > 0.15:
        return fuzz.mutate_folder(source, target, rng)
    shutil.copytree(source, target)
    described = json.loads((target / "model.json").read_bytes())
    names = sorted(described["sha256"])
    if chance < BOMBS:
        told = npz_bomb(rng, target / "arrays.npz")
    elif chance < 0.04:
        told = f"without {names[0]}"
        (target / names[0]).unlink()
        del described["sha256"][names[0]]
    elif chance < 0.08:
        told, described["fingerprint"] = another_hierarchy(rng, target / "hierarchy.json")
    else:
        told, data = mutated_bytes(rng, (target / "model.json").read_bytes())
        (target / "model.json").write_bytes(data)
        return f"model.json: {told}"
    for name in described["sha256"]:
        described["sha256"][name] = hashlib.sha256((target / name).read_bytes()).hexdigest()
    (target / "model.json").write_bytes(fuzz.dumps(described))
    return told


def another_hierarchy(rng: Rng, file: Path) -> tuple[str, str]:
    """Put another sound hierarchy in the place of one that is stored; return what was done, and its fingerprint."""
    stored = hierarchy_from_json(file.read_text(encoding="utf-8"), str(file))
    edges = stored.edges("the root")
    match rng.integers(3):
        case 0:
            told, edges = "a node more", [*edges, (stored.names[rng.integers(len(stored))], "one more")]
        case 1:
            told, edges = "fewer nodes", edges[: rng.integers(1, len(edges))]
        case _:
            told, edges = "flat", [("the root", name) for name in stored.names]
    found = Hierarchy.from_edges(edges, root="the root")
    file.write_text(hierarchy_to_json(found), encoding="utf-8")
    return told, found.fingerprint
