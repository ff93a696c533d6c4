"""Make the sample data set that ships with treelabel out of the nouns of WordNet 3.0.

A text is the gloss of a noun (its definition and example sentences as WordNet gives them); its label is a broader
noun above it in WordNet's "is a kind of" hierarchy. Three files are written: glosses.jsonl, taxonomy.tsv and
LICENSE.txt. To make them again, byte for byte:

    apt-get install wordnet-base
    python tools/make_sample.py --wordnet /usr/share/wordnet \
        --copyright /usr/share/doc/wordnet-base/copyright --out src/treelabel/data/wordnet
"""

import argparse
import json
import os
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = "Root"
MAX_DEPTH = 7
# A smaller leaf could not be divided among training, validation and test texts.
MIN_TEXTS_PER_LEAF = 5
# Labels with fewer texts stay whole, so that leaves end at several depths and some of them are large.
MIN_TEXTS_TO_SPLIT = 45
# Texts outside all sub-labels are lost: a label whose sub-labels hold a smaller share of its texts stays whole.
MIN_SHARE_IN_SUBLABELS = 0.75

# Labels are named here by WordNet's first lemma and offset.
TOP_LABELS = """animal-00015388 plant-00017222 food-00021265 artifact-00021939 person-00007846 body_part-05220461
    physical_condition-14034177 communication-00033020 geological_formation-09287968 diversion-00426928"""

# The sub-labels of some labels; those of all others follow from the numbers above. They pass over levels of WordNet
# that say little to a reader ("whole", "instrumentality", "placental"), join what WordNet divides between two senses of
# "food", leave out groups of people by descent or by fault, and keep the files small.
CHOSEN_SUBLABELS = {
    "animal-00015388": "mammal-01861778 bird-01503061 reptile-01661091 amphibian-01627424 insect-02159955",
    "mammal-01861778": """marsupial-01874434 carnivore-02075296 ungulate-02370806 rodent-02329401 primate-02469914
        bat-02139199 aquatic_mammal-02062017 lagomorph-02323449 insectivore-01889074 edentate-02453611
        proboscidean-02503127""",
    "ungulate-02370806": "horse-02374451 swine-02395003 bovid-02401031 deer-02430045",
    "bird-01503061": """passerine-01524359 bird_of_prey-01604330 aquatic_bird-01844917 gallinaceous_bird-01789386
        parrot-01816887 woodpecker-01838598""",
    "reptile-01661091": "turtle-01662784 lizard-01674464 dinosaur-01699831 snake-01726692",
    "plant-00017222": "tree-13104059 grass-12102133 orchid-12041446 cactus-11842204",
    "tree-13104059": """conifer-13108841 fruit_tree-12651821 nut_tree-13110915 oak-12268246 palm-12582231
        gum_tree-12334293 willow-12724942 maple-12752205 elm-12405714 ash-12303462""",
    "food-00021265": """dish-07557434 sweet-07596684 dairy_product-07843775 beverage-07881800 vegetable-07707451
        baked_goods-07622061 meat-07649854""",
    "artifact-00021939": """weapon-04565375 musical_instrument-03800933 tool-04451818 vehicle-04524313
        furniture-03405725 clothing-03051540""",
    "furniture-03405725": "seat-04161981 table-04379243 bedroom_furniture-02821943",
    "person-00007846": """serviceman-10582746 spiritual_leader-09505153 aristocrat-09807754 writer-10794014
        health_professional-10165109 athlete-09820263 performer-10415638 businessperson-09882716 relative-10235549
        scientist-10560637""",
    "body_part-05220461": "bone-05269901 muscle-05289297 gland-05327767 nerve-05474346 joint-05595083",
    "physical_condition-14034177": "disease-14070360 tumor-14235200 mental_disorder-14083790 injury-14285662",
    "communication-00033020": "literary_composition-06364329 legal_document-06479665 music-07020895",
    "diversion-00426928": "sport-00523513 dancing-00428270",
}

# WordNet marks slurs and obscenities in the gloss, or by a usage pointer to one of these nouns.
OFFENSIVE_GLOSS = re.compile("offensive|slur|derogat|disparag|obscen|vulgar|pejorat|insult|contempt|negro|racis", re.I)
OFFENSIVE_USAGES = {"06717170", "06718862", "07124340"}  # disparagement, ethnic slur, obscenity


class SampleError(Exception):
    """The sample cannot be made from the given files."""


@dataclass
class Noun:
    """A WordNet noun synset with those directly below it."""

    offset: str
    lemmas: list[str]
    gloss: str
    parent: str | None
    usable: bool
    children: list["Noun"] = field(default_factory=list)

    @property
    def key(self) -> str:
        """Name the noun as the tables of chosen labels do."""
        return f"{self.lemmas[0].replace(' ', '_')}-{self.offset}"

    def texts_below(self) -> list["Noun"]:
        """List the nouns strictly below whose glosses may serve as texts."""
        return [noun for child in self.children for noun in (child, *child.texts_below()) if noun.usable]


@dataclass
class Label:
    """A node of the label tree."""

    noun: Noun
    children: list["Label"]
    name: str = ""

    def walk(self) -> Iterator["Label"]:
        """Yield this label and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


def read_text(path: Path) -> str:
    """Read a file of the Debian package."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise SampleError(f"{path} is missing; Debian's package wordnet-base provides it") from error
    except UnicodeDecodeError as error:
        raise SampleError(f"{path} is not text in UTF-8") from error


def parse_noun(line: str) -> Noun:
    """Read one line of data.noun; wndb(5) describes the format."""
    head, gloss = line.split(" | ", 1)
    offset, _, _, lemma_count, *fields = head.split()
    lemmas_end = 2 * int(lemma_count, 16)
    pointers = list(zip(fields[lemmas_end + 1 :: 4], fields[lemmas_end + 2 :: 4], strict=True))
    # Instances ("@i") stay out: they are individuals such as cities and presidents, not kinds of things.
    hypernyms = [target for symbol, target in pointers if symbol == "@"]
    usages = {target for symbol, target in pointers if symbol == ";u"}
    return Noun(
        offset=offset,
        lemmas=[lemma.replace("_", " ") for lemma in fields[:lemmas_end:2]],
        gloss=gloss.strip(),
        # Keeping the first hypernym alone turns WordNet's graph into a tree.
        parent=hypernyms[0] if hypernyms else None,
        usable=not (usages & OFFENSIVE_USAGES or OFFENSIVE_GLOSS.search(gloss)),
    )


def read_nouns(path: Path) -> dict[str, Noun]:
    """Read data.noun into nouns by key, each linked to those below it."""
    # WordNet's licence precedes the data on lines that start with two spaces.
    lines = [line for line in read_text(path).splitlines() if not line.startswith("  ")]
    seen_glosses = set()
    try:
        by_offset = {noun.offset: noun for noun in map(parse_noun, lines)}
        for noun in by_offset.values():
            noun.usable = noun.usable and noun.gloss not in seen_glosses
            seen_glosses.add(noun.gloss)
            if noun.parent is not None:
                by_offset[noun.parent].children.append(noun)
    except (KeyError, ValueError) as error:
        raise SampleError(f"{path} is damaged or not in WordNet's format: {error}") from error
    return {noun.key: noun for noun in by_offset.values()}


def choose_parts(noun: Noun, nouns: dict[str, Noun]) -> list[Noun]:
    """Choose the nouns to be the sub-labels of a label: none if it is better left whole."""
    if noun.key in CHOSEN_SUBLABELS:
        return [nouns[key] for key in CHOSEN_SUBLABELS[noun.key].split()]
    text_count = len(noun.texts_below())
    if text_count < MIN_TEXTS_TO_SPLIT:
        return []
    parts = [child for child in noun.children if len(child.texts_below()) >= MIN_TEXTS_PER_LEAF]
    if len(parts) == 1:
        parts = choose_parts(parts[0], nouns)
    kept_count = sum(len(part.texts_below()) for part in parts)
    return parts if kept_count >= MIN_SHARE_IN_SUBLABELS * text_count else []


def grow(noun: Noun, depth: int, nouns: dict[str, Noun]) -> Label:
    """Make the label of a noun and all labels below it."""
    # Where WordNet has a chain ("sphenisciform seabird", "penguin"), its last noun is the one a reader knows.
    while len(noun.children) == 1 and len(noun.children[0].texts_below()) >= MIN_TEXTS_PER_LEAF:
        noun = noun.children[0]
    parts = choose_parts(noun, nouns) if depth < MAX_DEPTH else []
    return Label(noun, [grow(part, depth + 1, nouns) for part in parts])


def name_labels(root: Label) -> None:
    """Give every label a name of its own: its first lemma or, where labels share that, preferably another one."""
    first_lemmas = Counter(label.noun.lemmas[0].lower() for label in root.walk())
    taken = {lemma for lemma, label_count in first_lemmas.items() if label_count == 1}
    root.name = ROOT
    for parent in root.walk():
        for label in parent.children:
            first, *others = label.noun.lemmas
            if first_lemmas[first.lower()] > 1:
                candidates = [*others, first, f"{first} ({parent.name})"]
                first = next((name for name in candidates if name.lower() not in taken), "")
                taken.add(first.lower())
            if not first or re.search(r"[\t/>]", first):
                raise SampleError(f"no fit name for the label {label.noun.key}")
            label.name = first


def make_sample(nouns: dict[str, Noun]) -> tuple[str, str]:
    """Make the contents of glosses.jsonl and taxonomy.tsv."""
    unknown = sorted(set(" ".join([TOP_LABELS, *CHOSEN_SUBLABELS, *CHOSEN_SUBLABELS.values()]).split()) - set(nouns))
    if unknown:
        raise SampleError(f"data.noun is not that of WordNet 3.0: it lacks {', '.join(unknown)}")
    top_labels = [grow(nouns[key], 1, nouns) for key in TOP_LABELS.split()]
    root = Label(Noun("", [ROOT], "", None, usable=False), top_labels)
    name_labels(root)
    documents = sorted(
        (f"n{text.offset}", text.gloss, leaf.name)
        for leaf in root.walk()
        if not leaf.children
        for text in leaf.noun.texts_below()
    )
    if len({identifier for identifier, _, _ in documents}) < len(documents):
        raise SampleError("some chosen label lies below another leaf, so that texts would have two labels")
    lines = (
        json.dumps({"id": identifier, "text": gloss, "labels": [name]}, ensure_ascii=False) + "\n"
        for identifier, gloss, name in documents
    )
    edges = (f"{parent.name}\t{child.name}\n" for parent in root.walk() for child in parent.children)
    return "".join(lines), "".join(edges)


def make_licence(copyright_text: str) -> str:
    """Make the contents of LICENSE.txt from Debian's copyright file, whose format is machine-readable."""
    found = re.search(r"^Files: \*\nCopyright: (.+)\nLicense: .+\n((?: .+\n)+)", copyright_text, re.M)
    if not found:
        raise SampleError("the copyright file has no paragraph for all files")
    notice, text = found.groups()
    # Debian's file divides a word at the end of a line ("MERCHANT-/ABILITY").
    paragraphs = [" ".join(lines.split()) for lines in re.sub(r"(?<=\w)-\n ", "", text).split("\n .\n")]
    scope = "glosses.jsonl and taxonomy.tsv are made from WordNet 3.0 and stand under its licence:"
    filled = [textwrap.fill(part, 79, break_on_hyphens=False) for part in (scope, notice, *paragraphs)]
    return "\n\n".join(filled) + "\n"


def write_files(folder: Path, contents: dict[str, str]) -> None:
    """Write all files under temporary names, then rename them, so that none is ever seen half-written."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = {folder / f".{name}.{os.getpid()}.tmp": folder / name for name in contents}
    try:
        for path, final in temporary.items():
            path.write_text(contents[final.name], encoding="utf-8", newline="\n")
        for path, final in temporary.items():
            path.replace(final)
    finally:
        for path in temporary:
            path.unlink(missing_ok=True)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Make treelabel's sample data set from WordNet 3.0.")
    parser.add_argument("--wordnet", type=Path, required=True, help="folder that holds data.noun")
    parser.add_argument("--copyright", type=Path, required=True, help="copyright file of Debian's wordnet-base")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    arguments = parser.parse_args()
    try:
        glosses, taxonomy = make_sample(read_nouns(arguments.wordnet / "data.noun"))
        licence = make_licence(read_text(arguments.copyright))
        write_files(arguments.out, {"glosses.jsonl": glosses, "taxonomy.tsv": taxonomy, "LICENSE.txt": licence})
    except (OSError, SampleError) as error:
        print(f"make_sample: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
