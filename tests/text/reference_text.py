"""Slow, obvious twins of the text room: words, hashed n-grams, tf-idf and phrases, in plain Python."""

import math
from collections import Counter

MASK = (1 << 64) - 1
WORD_SEED, CHAR_SEED = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
PRIME, SPREAD = 0x100000001B3, 0xFF51AFD7ED558CCD
BOUNDARY = 3

Range = tuple[int, int] | None


def words_of(text: str) -> list[str]:
    """Split a text of scripts with blanks into lower-case runs of letters, digits and underscores."""
    lower = "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
    return "".join(c if c.isalnum() or c == "_" else " " for c in lower).split()


def fnv(seed: int, codes: list[int]) -> int:
    """Hash numbers one after the other (FNV-1a with another seed)."""
    for code in codes:
        seed = ((seed ^ code) * PRIME) & MASK
    return seed


def bucket(mixed: int, n_features: int) -> int:
    """Scale the upper half of a spread hash to a bucket."""
    spread = ((mixed ^ (mixed >> 33)) * SPREAD) & MASK
    return (spread >> 32) * n_features >> 32


def word_bucket(words: list[str], n_features: int) -> int:
    """Return the bucket of an n-gram of words."""
    hashes = [fnv(WORD_SEED, [ord(c) for c in word]) for word in words]
    mixed = hashes[0]
    for each in hashes[1:]:
        mixed = (((mixed * PRIME) & MASK) ^ each) * PRIME & MASK
    return bucket(mixed, n_features)


def buckets_of(text: str, ngram_range: Range, char_range: Range, n_features: int, apart: bool = False) -> list[int]:
    """List the buckets of all n-grams of a text: words in the order of their ends, then characters."""
    words, listed = words_of(text), []
    low, high = ngram_range or (1, 0)
    for end in range(1, len(words) + 1):
        for n in range(low, min(high, end) + 1):
            kind = n - low if apart else 0
            listed.append(kind * n_features + word_bucket(words[end - n : end], n_features))
    kind = high - low + 1 if apart else 0
    low, high = char_range or (1, 0)
    for word in words:
        codes = [BOUNDARY, *map(ord, word), BOUNDARY]
        for start in range(len(codes)):
            if start == len(codes) - 1 and low == 1:
                continue  # the last boundary alone begins no n-gram
            ends = [start + n for n in range(low, high + 1) if start + n <= len(codes)]
            hashes = [fnv(CHAR_SEED, codes[start:end]) for end in ends]
            listed += [kind * n_features + bucket(mixed, n_features) for mixed in hashes]
    return listed


def tfidf_rows(
    train: list[list[int]], texts: list[list[int]], n_features: int, weights: list[float] | None, min_df: int
) -> tuple[list[int], list[dict[int, float]]]:
    """Return the columns' buckets, most frequent first, and the weights of texts by bucket."""
    df = Counter(b for listed in train for b in set(listed))
    columns = sorted((b for b in df if df[b] >= min_df), key=lambda b: (-df[b], b))
    idf = {b: 1 + math.log((1 + len(train)) / (1 + df[b])) for b in columns}
    rows = []
    for listed in texts:
        counts = Counter(b for b in listed if b in idf)
        row = {b: (1 + math.log(c)) * idf[b] for b, c in counts.items()}
        if weights is not None:
            for kind, weight in enumerate(weights):
                of_kind = [b for b in row if b // n_features == kind]
                length = math.sqrt(sum(row[b] ** 2 for b in of_kind))
                for b in of_kind:
                    row[b] *= weight / length
        length = math.sqrt(sum(value**2 for value in row.values()))
        rows.append({b: value / length for b, value in row.items()})
    return columns, rows


def singular(word: str) -> str:
    """Return the singular of an English word, as far as its ending says it."""
    if len(word) < 4 or not word.endswith("s") or word[-2] in "sui":
        return word
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("xes", "sses", "ches", "shes")):
        return word[:-2]
    return word[:-1]


def find_phrases(names: list[str], text: str) -> tuple[dict[str, tuple[int, int, int]], int]:
    """Find names in a text: of each phrase its count, the words before it, and whether it is in the first line.

    The longest phrase at each word counts, unless it lies within one that began before. Also returns the words.
    """
    phrases = {" ".join(map(singular, words_of(name))) for name in names} - {""}
    title, _, rest = text.partition("\n")
    in_title = len(words_of(title))
    words = [singular(word) for word in words_of(title) + words_of(rest)]
    matches: dict[str, list[int]] = {}
    covered = 0
    for start in range(len(words)):
        ends = [end for end in range(start + 1, len(words) + 1) if " ".join(words[start:end]) in phrases]
        if ends and max(ends) > covered:
            covered = max(ends)
            matches.setdefault(" ".join(words[start:covered]), [0, start, int(start < in_title)])[0] += 1
    return {phrase: (count, first, top) for phrase, (count, first, top) in matches.items()}, len(words)
