"""Damage done to files: bytes, text, JSON values, arrays and whole model folders, drawn from a random generator.

Every function takes a generator and returns what it did, in words, with the damaged thing; so a seed is a reproducer.
"""

import gzip
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from treelabel.hierarchy import Hierarchy, hierarchy_from_json, hierarchy_to_json

Rng = np.random.Generator
Arrays = Mapping[str, np.ndarray[Any, Any]]

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


def with_nasty(rng: Rng, data: bytes) -> bytes:
    """Insert what has no business there, once or a few times."""
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(0, len(data) + 1))
        data = data[:place] + NASTY[rng.integers(len(NASTY))] + data[place:]
    return data


def with_odd_number(rng: Rng, data: bytes) -> bytes:
    """Put an odd number in the place of one that is there, or anywhere."""
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


BYTE_MUTATORS: tuple[Callable[[Rng, bytes], bytes], ...] = (
    flipped,
    cut_short,
    without_part,
    doubled_part,
    with_nasty,
    with_odd_number,
    with_deep_nesting,
    with_other_lines,
)


def mutated_bytes(rng: Rng, data: bytes) -> tuple[str, bytes]:
    """Damage bytes in one of the ways of BYTE_MUTATORS."""
    mutate = BYTE_MUTATORS[rng.integers(len(BYTE_MUTATORS))]
    return mutate.__name__, mutate(rng, data) if data else NASTY[rng.integers(len(NASTY))]


# JSON


def odd_values() -> list[Any]:
    """Return values that are seldom what is expected."""
    return [
        *(None, True, False, 0, 1, -1, 2**31, -(2**31) - 1, 2**63, 10**30),
        *(0.5, 1e308, float("nan"), float("inf")),
        *("", "x", "\x1b[2J", "x" * 100_000, "../../etc/passwd"),
        *([], {}, [[]], [None], [-1], {"a": {}}, ["x"] * 3, [1e308] * 3),
    ]


def mutated_json(rng: Rng, value: Any) -> tuple[str, Any]:
    """Change one value somewhere in nested lists and dicts: another value, gone, doubled, or under another name."""
    found = json.loads(json.dumps(value))
    places = list(_places(found, ()))
    if not places:
        return "another value", _odd(rng)
    path = places[rng.integers(len(places))]
    holder = found
    for key in path[:-1]:
        holder = holder[key]
    key = path[-1]
    told = "/".join(map(str, path))[:200]
    match rng.integers(6):
        case 0:
            del holder[key]
            return f"without {told}", found
        case 1 if isinstance(holder, dict):
            holder[str(key) + "_"] = holder.pop(key)
            return f"renamed {told}", found
        case 1 | 2 if isinstance(holder, list):
            holder.insert(key, holder[key])
            return f"doubled {told}", found
        case 3 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] = holder[key] * int(rng.choice([-1, 2, 1000])) + int(rng.choice([-1, 0, 1]))
            return f"{told} = {holder[key]}", found
    holder[key] = _odd(rng)
    return f"{told} = {str(holder[key])[:40]!r}", found


def _odd(rng: Rng) -> Any:
    values = odd_values()
    return values[rng.integers(len(values))]


def _places(value: Any, path: tuple[Any, ...]) -> "list[tuple[Any, ...]]":
    """Return the paths to all values within a value; of long lists only some, or they would drown the rest."""
    if isinstance(value, dict):
        keys: list[Any] = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))[:3] + list(range(len(value)))[3:][-1:]
    else:
        return []
    return [place for key in keys for place in ((*path, key), *_places(value[key], (*path, key)))]


# Arrays


def mutated_arrays(rng: Rng, arrays: Arrays) -> tuple[str, dict[str, Any]]:
    """Change one of several arrays: values, type, shape, name; or leave it out, swap it, or add another."""
    found: dict[str, Any] = dict(arrays)
    names = list(found)
    if not names:
        return "an array more", {"x": np.zeros(3)}
    name, other = names[rng.integers(len(names))], names[rng.integers(len(names))]
    match rng.integers(10):
        case 0:
            del found[name]
            return f"without {name}", found
        case 1:
            found[name], found[other] = found[other], found[name]
            return f"{name} and {other} swapped", found
        case 2:
            found[f"{name}_"] = found.pop(name)
            return f"{name} renamed", found
        case 3:
            found["more"] = found[name]
            return "an array more", found
        case 4 | 5:
            found[name], told = _other_shape(rng, found[name])
        case 6:
            kind = ("i1", "u1", "i8", "u8", "f2", "f4", "f8", "?", "c16", "U3", "S2", "M8[s]", ">i4", ">f8")[
                rng.integers(14)
            ]
            with np.errstate(all="ignore"):
                found[name], told = _as_kind(found[name], kind), kind
        case _:
            found[name], told = _other_values(rng, found[name])
    return f"{name}: {told}", found


def _as_kind(array: Any, kind: str) -> Any:
    try:
        return array.astype(kind)
    except (TypeError, ValueError):
        return np.zeros(array.shape, kind)


def _other_shape(rng: Rng, array: Any) -> tuple[Any, str]:
    match rng.integers(8):
        case 0:
            return array[:0], "emptied"
        case 1 if array.ndim:
            return array[:-1], "one less"
        case 2 if array.ndim and len(array):
            return np.concatenate([array, array[-1:]]), "one more"
        case 3:
            return array[None], "a dimension more"
        case 4:
            return array.ravel(), "one dimension"
        case 5:
            return array.T, "transposed"
        case 6:
            return array.reshape(-1)[0] if array.size else array, "one number"
        case 7 if array.ndim:
            return np.repeat(array, 50, axis=0), "fifty times"
    return array[:0], "emptied"


def _other_values(rng: Rng, array: Any) -> tuple[Any, str]:
    found = array.copy()
    if not found.size:
        return np.ones(3, array.dtype), "filled"
    flat, place = found.reshape(-1), int(rng.integers(found.size))
    if rng.random() < 0.15:
        flat[:] = flat[rng.permutation(flat.size)]
        return flat.reshape(found.shape), "shuffled"
    if found.dtype.kind == "f":
        value: Any = rng.choice([np.nan, np.inf, -np.inf, -1.0, 0.0, 2.0, 1e30, -1e30])
    elif found.dtype.kind in "iu":
        info = np.iinfo(found.dtype)
        value = rng.choice([info.min, info.max, 0, 1, max(info.min, -1), min(info.max, 10**8), flat.size])
    else:
        value = flat[-1]
    # The last one often is the one that says how many there are.
    where = slice(None) if rng.random() < 0.1 else -1 if rng.random() < 0.3 else place
    flat[where] = value
    return flat.reshape(found.shape), f"[{'all' if isinstance(where, slice) else where}] = {value}"


def npz_bytes(arrays: Mapping[str, Any], compressed: bool = False) -> bytes:
    """Write arrays as an .npz file."""
    stream = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(stream, allow_pickle=False, **arrays)
    return stream.getvalue()


def npz_bomb(rng: Rng, arrays: Arrays) -> tuple[str, bytes]:
    """Let an array be huge, by its header alone or by zeros that are packed well."""
    name = list(arrays)[rng.integers(len(arrays))]
    if rng.random() < 0.5:
        return f"{name}: 400 MB of packed zeros", npz_bytes({**arrays, name: _zeros()}, compressed=True)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for each, array in arrays.items():
            member = io.BytesIO()
            np.save(member, array, allow_pickle=False)
            data = member.getvalue()
            if each == name:
                header = io.BytesIO()
                np.lib.format.write_array_header_1_0(
                    header, {"descr": "<f8", "fortran_order": False, "shape": (10 ** int(rng.choice([9, 12, 18])),)}
                )
                data = header.getvalue() + bytes(64)
            archive.writestr(f"{each}.npy", data)
    return f"{name}: a header that promises too much", stream.getvalue()


@cache
def _zeros() -> Any:
    return np.zeros(50_000_000)


def mutated_npz(rng: Rng, data: bytes) -> tuple[str, bytes]:
    """Damage an .npz file: its arrays mostly, its bytes sometimes; now and then it becomes a bomb."""
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    chance = rng.random()
    if chance < 0.15:
        return mutated_bytes(rng, data)
    if chance < 0.17:
        return npz_bomb(rng, arrays)
    texts = [name for name, array in arrays.items() if array.dtype == np.uint8 and array.size > 2]
    if texts and chance < 0.4:
        # Texts are stored as their bytes: damage what they say.
        name = texts[rng.integers(len(texts))]
        told, text = _mutated_text(rng, arrays[name].tobytes())
        arrays[name] = np.frombuffer(text, np.uint8)
        return f"{name}: {told}", npz_bytes(arrays)
    told, arrays = mutated_arrays(rng, arrays)
    return told, npz_bytes(arrays, compressed=rng.random() < 0.2)


def _mutated_text(rng: Rng, text: bytes) -> tuple[str, bytes]:
    """Damage a JSON text by its values, or as bytes."""
    if rng.random() < 0.3:
        return mutated_bytes(rng, text)
    told, value = mutated_json(rng, json.loads(text))
    return told, json.dumps(value).encode()


mutated_json_text = _mutated_text


# Parquet


def mutated_parquet(rng: Rng, data: bytes) -> tuple[str, bytes]:
    """Damage a Parquet file: a column's values, type or name, its metadata, or its bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if rng.random() < 0.3:
        return mutated_bytes(rng, data)
    table = pq.read_table(io.BytesIO(data), thrift_string_size_limit=2**31 - 1)
    place = int(rng.integers(table.num_columns))
    name, column = table.column_names[place], table.column(place).combine_chunks()
    metadata = dict(table.schema.metadata or {})
    match rng.integers(6):
        case 0:
            table, told = table.remove_column(place), f"without {name}"
        case 1:
            table, told = (
                table.rename_columns([f"{c}_" if c == name else c for c in table.column_names]),
                f"{name} renamed",
            )
        case 2:
            values = [None if rng.random() < 0.3 else value for value in column.to_pylist()]
            table, told = _with_column(table, place, name, values, column.type), f"{name}: nulls"
        case 3:
            values = [_cell(rng, value) for value in column.to_pylist()]
            table, told = _with_column(table, place, name, values, None), f"{name}: odd values"
        case 4 if metadata:
            key = list(metadata)[rng.integers(len(metadata))]
            done, metadata[key] = mutated_bytes(rng, metadata[key])
            told = f"metadata {key!r}: {done}"
        case _:
            table, told = pa.concat_tables([table] * 3), "three times"
    stream = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), stream)
    return told, stream.getvalue()


def _cell(rng: Rng, value: Any) -> Any:
    """Change a value of a column, within its kind."""
    if isinstance(value, list):
        return [_cell(rng, each) for each in value[: rng.integers(0, len(value) + 1)]]
    if isinstance(value, int):
        return int(rng.choice([value, -1, 0, 2**31 - 1, value]))
    if isinstance(value, float):
        return float(rng.choice([value, np.nan, np.inf, -1.0, 2.0, value]))
    return value if value is None or rng.random() < 0.5 else f"{value}\x1b\u202e"


def _with_column(table: Any, place: int, name: str, values: list[Any], kind: Any) -> Any:
    import pyarrow as pa

    if kind is not None and pa.types.is_fixed_size_list(kind):
        kind = pa.list_(kind.value_type)
    return table.set_column(place, name, pa.array(values, kind))


# Files and folders


def mutated_file(rng: Rng, path: Path) -> str:
    """Damage a file by its ending: what is packed is sometimes damaged inside."""
    data = path.read_bytes()
    endings = path.suffixes
    if endings[-1] == ".npz":
        told, data = mutated_npz(rng, data)
    elif endings[-1] == ".parquet":
        told, data = mutated_parquet(rng, data)
    elif endings[-1] == ".gz" and rng.random() < 0.02:
        told, data = "300 MB of packed zeros", gzip_bomb()
    elif endings[-1] == ".gz" and rng.random() < 0.7:
        told, inside = mutated_bytes(rng, gzip.decompress(data))
        data = gzip.compress(inside, 1)
    elif endings[-1] == ".json" and rng.random() < 0.6:
        told, data = mutated_json_text(rng, data)
    else:
        told, data = mutated_bytes(rng, data)
    path.write_bytes(data)
    return told


@cache
def gzip_bomb() -> bytes:
    """Pack 300 MB of zeros."""
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=1, mtime=0) as packed:
        for _ in range(300):
            packed.write(bytes(1_000_000))
    return stream.getvalue()


def mutated_model(rng: Rng, folder: Path) -> str:
    """Damage a model folder, and make its checksums again, so that they do not give the damage away."""
    files = sorted(file.name for file in folder.iterdir() if file.name != "model.json")
    described = json.loads((folder / "model.json").read_bytes())
    chance = rng.random()
    if chance < 0.3:
        # The checksums stay: they are the first to tell of damage.
        sums = described.pop("sha256")
        told, changed = mutated_json(rng, described)
        described["sha256"] = sums
        if isinstance(changed, dict):
            changed.setdefault("sha256", sums)
        (folder / "model.json").write_text(json.dumps(changed))
        return f"model.json: {told}"
    if chance < 0.35:
        told, data = mutated_bytes(rng, (folder / "model.json").read_bytes())
        (folder / "model.json").write_bytes(data)
        return f"model.json: {told}"
    name = "arrays.npz" if chance < 0.75 else files[rng.integers(len(files))]
    if rng.random() < 0.03:
        (folder / name).unlink()
        told = "gone"
        described["sha256"].pop(name)
    elif name == "hierarchy.json" and rng.random() < 0.5:
        told, described["fingerprint"] = another_hierarchy(rng, folder / name)
        described["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    else:
        told = mutated_file(rng, folder / name)
        described["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "model.json").write_text(json.dumps(described))
    return f"{name}: {told}"


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
