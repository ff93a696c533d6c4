"""How names of labels are spelled: the clean form of one, and which are the same but for case, spaces and the like."""

import html
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from treelabel.core.types import LongArray
from treelabel.hierarchy.hierarchy import Hierarchy

# Marks that are not seen: soft hyphen, zero-width characters, byte order mark.
UNSEEN = re.compile("[\u00ad\u200b\u2060\ufeff]")
ENTITY = re.compile(r"&(#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
NO_LETTERS = re.compile(r"[\W_]+")


def clean_name(name: str) -> str:
    r"""Return a name in composed Unicode without HTML entities, unseen marks and irregular spaces.

    >>> clean_name(" Food &amp;  Drink\xa0"), clean_name("Cafe\u0301") == "Caf\xe9"
    ('Food & Drink', True)
    """
    # Files that were escaped twice have &amp;amp;.
    for _ in range(2):
        name = ENTITY.sub(lambda match: html.unescape(match[0]), name)
    return " ".join(unicodedata.normalize("NFC", UNSEEN.sub("", name)).split()) or name.strip()


def name_key(name: str) -> str:
    """Return the same text for names that differ in nothing but case, spaces, HTML entities and Unicode forms.

    >>> name_key("Food &amp; Drink") == name_key("FOOD  & drink"), name_key("Food") == name_key("Foods")
    (True, False)
    """
    folded = unicodedata.normalize("NFKC", clean_name(name)).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def loose_key(name: str) -> str:
    """Return the same text also for names that differ in hyphens, commas, "&" for "and", and the like.

    >>> loose_key("Home-Garden") == loose_key("home & garden") == loose_key("Home and garden")
    True
    """
    words = NO_LETTERS.sub(" ", name_key(name)).split()
    return "".join(word for word in words if word != "and") or name_key(name)


def spelling_groups(hierarchy: Hierarchy) -> LongArray:
    """Number the nodes of a hierarchy, alike where their paths (in a DAG: their names) are spellings of one.

    >>> spelling_groups(Hierarchy.from_paths(["Food > Tea", "food > tea", "Food > Cake"])).tolist()
    [0, 0, 1, 2, 1]
    """
    seen: dict[tuple[int, str], int] = {}
    groups = np.empty(len(hierarchy), np.int64)
    parent = hierarchy.parent.tolist() if hierarchy.is_tree else [-1] * len(hierarchy)
    for node, name in enumerate(hierarchy.names):
        above = -1 if parent[node] < 0 else int(groups[parent[node]])
        groups[node] = seen.setdefault((above, name_key(name)), len(seen))
    return groups


def usual_spellings(names: Sequence[str], groups: LongArray, frequencies: LongArray) -> list[str]:
    """Return the clean name of each group: the spelling that most documents have, the first of equally frequent ones.

    Parameters
    ----------
    names : sequence of str
        The names of nodes.
    groups : array of shape (nodes,)
        From `spelling_groups`.
    frequencies : array of shape (nodes,)
        How many documents have each.

    Returns
    -------
    list of str

    >>> usual_spellings(["food", "Food", "tea&amp;co"], np.array([0, 0, 1]), np.array([1, 5, 0]))
    ['Food', 'tea&co']
    """
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for name, group, count in zip(names, groups.tolist(), frequencies.tolist(), strict=True):
        counts[group][clean_name(name)] += count
    return [max(counts[group].items(), key=lambda item: item[1])[0] for group in range(len(counts))]
