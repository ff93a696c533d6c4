"""Frozen embeddings: documents a second by torch, ONNX Runtime and int8 against a plain sentence-transformers encode.

    python benchmarks/embedding.py                              # all, ten minutes on two cores; exit 1 if a claim fails
    python benchmarks/embedding.py --repeats 2 --texts 100      # a glance
    python benchmarks/embedding.py --data ../shared/data        # where hwv and clinc150 are

The peer is `SentenceTransformer(folder).encode(texts)` with its defaults and the same number of tokens, on the same
texts in the same process; all take turns, and the best time of each counts, after a warm-up. Graphs are exported before
anything is measured. Long texts are hwv's first test documents, short ones clinc150's. int8 is compared with float32
by the largest and the mean cosine distance of a text's two vectors.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Claim, best_of_each, report

from treelabel import read
from treelabel.core.errors import TreelabelError
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.registry import find_encoder, find_source

DATA = Path(os.environ.get("TREELABEL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))

# Documents of each set, and tokens that are read of each.
SETS = {"hwv": (300, 256), "clinc150": (1500, 256)}
PEER = "sentence-transformers"
# How many times the peer's speed each way must have.
REQUIRED = {"torch": None, "onnx": 1.15, "int8": 1.6}
STATIC = ("potion", "wordllama")
# Thousands of documents a second are what static vectors are for.
STATIC_SPEED = 1000
# Vectors of the two ways in float32 agree to this.
CLOSE = 1e-5


def peer_encode(tokens: int) -> Callable[[list[str]], Any]:
    """Load the peer with the same weights and length."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(find_source("minilm").folder), device="cpu")
    model.max_seq_length = tokens
    return partial(model.encode, show_progress_bar=False)


def measure_transformer(name: str, texts: list[str], tokens: int, repeats: int) -> list[Claim]:
    """Measure all ways on the same texts, in turns."""
    ways: dict[str, Callable[[list[str]], Any]] = {PEER: peer_encode(tokens)}
    for runtime in REQUIRED:
        ways[runtime] = find_encoder(f"minilm(max_length={tokens}, runtime={runtime})").transform
    for encode in ways.values():
        encode(texts[:8])
    measured = best_of_each(repeats, *(partial(encode, texts) for encode in ways.values()))
    took = {way: seconds for way, (seconds, _) in zip(ways, measured, strict=True)}
    rows = {way: np.asarray(found) for way, (_, found) in zip(ways, measured, strict=True)}
    peer = f"{PEER} {len(texts) / took[PEER]:,.1f}/s"
    claims = []
    for way, least in REQUIRED.items():
        ratio = took[PEER] / took[way]
        required, kept = ("", None) if least is None else (f">= {least:g}x", ratio >= least)
        claims.append(Claim(f"{name}: {way}", f"{len(texts) / took[way]:,.1f}/s", peer, ratio, required, kept))
    return [*claims, *distances(name, rows)]


def distances(name: str, rows: dict[str, Any]) -> list[Claim]:
    """Compare the vectors of the ways."""
    claims = []
    for way in ("torch", "onnx"):
        apart = float(np.abs(rows[way] - rows[PEER]).max())
        required = f"< {CLOSE:g}"
        claims.append(Claim(f"  {name}: {way}, largest difference", f"{apart:.1g}", "", None, required, apart < CLOSE))
    cosine = 1 - (rows["int8"] * rows["onnx"]).sum(axis=1)
    claims.append(Claim(f"  {name}: int8, cosine distance", f"largest {cosine.max():.4f}, mean {cosine.mean():.4f}"))
    return claims


def measure_static(name: str, texts: list[str], repeats: int) -> list[Claim]:
    """Measure those static encoders that are there."""
    encoders: list[Encoder] = []
    claims = []
    for each in STATIC:
        try:
            encoders.append(find_encoder(each))
        except TreelabelError:
            claims.append(Claim(f"{name}: {each}", "not on this machine"))
    works = [partial(encoder.transform, texts) for encoder in encoders]
    for encoder, (took, _) in zip(encoders, best_of_each(repeats, *works), strict=True) if works else ():
        speed = len(texts) / took
        required = f">= {STATIC_SPEED:,}/s"
        claims.append(Claim(f"{name}: {encoder.name}", f"{speed:,.0f}/s", "", None, required, speed >= STATIC_SPEED))
    return claims


def texts_of(folder: Path, name: str, most: int) -> list[str]:
    """Read the first texts of a test set."""
    return list(read(folder / name / "test.jsonl.gz").texts)[:most]


def verdicts(claims: Sequence[Claim]) -> list[str]:
    """Say of each requirement in a line whether it is kept."""
    return [
        f"{'OK' if claim.kept else 'FALLS SHORT'}: {claim.what.strip()} {claim.ours}"
        + ("" if claim.ratio is None else f" = {claim.ratio:.2f}x the peer")
        + f", required {claim.required}"
        for claim in claims
        if claim.kept is not None
    ]


def main() -> int:
    """Measure all, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description="Measure embeddings against sentence-transformers.")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets")
    parser.add_argument("--sets", default=",".join(SETS), help="data sets, comma-separated")
    parser.add_argument("--texts", type=int, help="fewer texts of each set")
    parser.add_argument("--repeats", type=int, default=5, help="turns, of which the best counts")
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    started = time.perf_counter()
    claims = []
    for name in options.sets.split(","):
        most, tokens = SETS[name]
        texts = texts_of(options.data, name, options.texts or most)
        print(f"{name}: {len(texts):,} texts, {np.mean([len(text.split()) for text in texts]):.0f} words on average")
        claims += measure_transformer(name, texts, tokens, options.repeats)
        claims += measure_static(name, texts, options.repeats)
    kept = report("Embeddings by all-MiniLM-L6-v2, and static ones", claims)
    print("\n".join(verdicts(claims)))
    print(f"{time.perf_counter() - started:.0f} s in all")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
