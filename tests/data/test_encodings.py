"""Text in any encoding, with any line ends, compressed or not: read alike wherever text is read."""

import bz2
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import put, read_text
from tests.strategies import examples
from treelabel import Dataset, Hierarchy, TreelabelError, read, read_taxonomy
from treelabel.core import encodings
from treelabel.core.encodings import encoding_of, western_text
from treelabel.core.inputs import UndecodableLine, open_input, text_lines
from treelabel.core.limits import Limits
from treelabel.data import SkippedRowsWarning
from treelabel.models.descriptions import node_descriptions

# Name, byte order mark, encoding.
ENCODINGS = {
    "UTF-8": ("", "utf-8"),
    "UTF-8 with a mark": ("\ufeff", "utf-8"),
    "UTF-16 LE": ("", "utf-16-le"),
    "UTF-16 LE with a mark": ("\ufeff", "utf-16-le"),
    "UTF-16 BE": ("", "utf-16-be"),
    "UTF-16 BE with a mark": ("\ufeff", "utf-16-be"),
    "UTF-32 LE with a mark": ("\ufeff", "utf-32-le"),
    "UTF-32 BE with a mark": ("\ufeff", "utf-32-be"),
}
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda content: pa.compress(content, "zstd", asbytes=True),
}
LINE_ENDS = {"LF": "\n", "CRLF": "\r\n", "CR": "\r"}
TEXTS = ["woof, said the dog", "naïve 🐟 meow", 'a "quoted" word; and more', "plain text of Latin letters"]
LABELS = ["dog", "cat", "dog", "cat"]


def csv_lines(delimiter: str) -> list[str]:
    quoted = [text.replace('"', '""') for text in TEXTS]
    return [
        f"text{delimiter}label",
        *(f'"{text}"{delimiter}{label}' for text, label in zip(quoted, LABELS, strict=True)),
    ]


def json_lines(text: str, label: str) -> list[str]:
    pairs = zip(TEXTS, LABELS, strict=True)
    return [json.dumps({text: given, label: [name]}, ensure_ascii=False) for given, name in pairs]


FILES = {
    "d.csv": csv_lines(","),
    "d.tsv": csv_lines("\t"),
    "d.txt": csv_lines("\t"),
    "d.jsonl": json_lines("text", "label"),
    "d.json": ["[", ",".join(json_lines("text", "label")), "]"],
    "d.htc": json_lines("token", "label"),
    "d.ft": [f"__label__{label} {text}" for text, label in zip(TEXTS, LABELS, strict=True)],
}


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("end", LINE_ENDS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_data_read_alike_in_every_encoding(tmp_path: Path, encoding: str, end: str, compression: str) -> None:
    mark, codec = ENCODINGS[encoding]
    for name, lines in FILES.items():
        content = (mark + "".join(line + LINE_ENDS[end] for line in lines)).encode(codec)
        data = read(put(tmp_path, name + compression, COMPRESSIONS[compression](content)))
        assert list(data.texts) == TEXTS, name
        assert data.names() == [[label] for label in LABELS], name


@pytest.mark.parametrize("end", LINE_ENDS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_numbers_taxonomies_and_descriptions_do_too(tmp_path: Path, encoding: str, end: str) -> None:
    mark, codec = ENCODINGS[encoding]

    def encoded(*lines: str) -> bytes:
        return (mark + "".join(line + LINE_ENDS[end] for line in lines)).encode(codec)

    data = read_text(tmp_path, "d.xmc", encoded("2 3 2", "0 1:0.5", "1 2:1"), need_text=False)
    assert data.features is not None
    assert data.features.toarray().tolist() == [[0, 0.5, 0], [0, 0, 1]]
    expected = ["pet", "pet > dog", "pet > naïve 🐟"]
    for name, lines in {
        "t.tsv": ("pet\tdog", "pet\tnaïve 🐟"),
        "t.csv": ("child;parent", "dog;pet", "naïve 🐟;pet", "pet;"),
        "t.txt": ("pet > dog", "pet > naïve 🐟"),
        "t.json": ('{"pet":', '["dog", "naïve 🐟"]}'),
    }.items():
        assert sorted(read_taxonomy(put(tmp_path, name, encoded(*lines))).paths()) == expected, name
    described = put(tmp_path, "descriptions.tsv", encoded("dog\tgood boy", "naïve 🐟\tswims about"))
    h = Hierarchy.from_paths(expected)
    assert node_descriptions(h, str(described)) == {h.names.index("dog"): "good boy", 2: "swims about"}


def test_predictions_may_come_from_windows(tmp_path: Path) -> None:
    file = put(tmp_path, "p.jsonl", '{"id": "1", "labels": [{"label": "dög"}]}\r\n'.encode("utf-16"))
    data = read(file, need_text=False, taxonomy=Hierarchy.flat(["dög"]))
    assert (list(data.ids), data.names()) == (["1"], [["dög"]])


@examples(60)
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\ufeff"), max_size=30), max_size=9
    ),
    st.sampled_from([codec for mark, codec in ENCODINGS.values() if mark]),
    st.integers(1, 50),
)
def test_any_text_comes_back_whatever_pieces_it_is_read_in(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], codec: str, piece: int
) -> None:
    file = tmp_path_factory.mktemp("any") / "lines.txt"
    file.write_bytes(("\ufeff" + "".join(f"{line}\n" for line in lines)).encode(codec))
    with pytest.MonkeyPatch.context() as patch, open_input(file) as stream:
        patch.setattr(encodings, "PIECE", piece)
        assert list(text_lines(stream, file, universal=False)) == [f"{line}\n" for line in lines]


@examples(100)
@given(st.binary(max_size=200), st.sampled_from([codec for mark, codec in ENCODINGS.values() if mark]))
def test_bytes_without_meaning_spoil_their_line_only(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, codec: str
) -> None:
    width = 4 if "32" in codec else 2
    noise = noise[: len(noise) // width * width]
    file = tmp_path_factory.mktemp("any") / "lines.txt"
    file.write_bytes("\ufefffirst\n".encode(codec) + noise + "\nlast".encode(codec))
    with open_input(file) as stream:
        lines = list(text_lines(stream, file))
    assert (lines[0], lines[-1]) == ("first\n", "last")
    is_good = True
    try:
        noise.decode(codec)
    except UnicodeDecodeError:
        is_good = False
    assert any(isinstance(line, UndecodableLine) for line in lines) is not is_good


def test_a_file_that_ends_within_a_character_is_refused_with_its_line(tmp_path: Path) -> None:
    content = "text,label\na,A\nb,B".encode("utf-16")
    with pytest.raises(
        TreelabelError, match=r"d\.csv:3: character 4 of the line is not utf-16-le; the file may be dam"
    ):
        read_text(tmp_path, "d.csv", content + b"x")


def test_half_a_character_in_utf_16_is_one_bad_row(tmp_path: Path) -> None:
    content = "\ufefftext,label\na,A\n".encode("utf-16-le") + b"\x00\xd8" + ",A\nb,B\n".encode("utf-16-le")
    with pytest.warns(SkippedRowsWarning, match=r"d\.csv:3: character 1 of the line is not utf-16-le"):
        data = read_text(tmp_path, "d.csv", content, on_error="skip")
    assert list(data.texts) == ["a", "b"]


def test_what_is_no_utf_8_says_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(TreelabelError) as refused:
        read_text(tmp_path, "d.csv", "text,label\ncafé,A\n".encode("cp1252"))
    assert str(refused.value).startswith(
        f"{tmp_path / 'd.csv'}:2: byte 4 of the line (0xe9) is not utf-8; save the file as UTF-8, or name its encoding "
        "(--encoding cp1252; old Windows files are cp1252)"
    )
    with pytest.raises(TreelabelError, match=r"--encoding utf-16\)"):
        read_text(tmp_path, "d.csv", "日本語日本語,日本語日本語\n".encode("utf-16-le"))


def test_a_mark_wins_over_the_encoding_that_is_named(tmp_path: Path) -> None:
    for codec in ("utf-8-sig", "utf-16"):
        data = read_text(tmp_path, "d.csv", "text,label\ncafé,A\n".encode(codec), encoding="cp1252")
        assert list(data.texts) == ["café"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp037", "shift_jis", "utf-8-sig"])
def test_any_encoding_can_be_named(tmp_path: Path, encoding: str) -> None:
    text = "ABC def" if encoding == "cp037" else "日本語 テスト"
    data = read_text(tmp_path, "d.csv", f"text,label\n{text},A\nb,B\n".encode(encoding), encoding=encoding)
    assert list(data.texts) == [text, "b"]


@pytest.mark.parametrize("encoding", ["klingon", "zlib", "undefined\0", ""])
def test_what_is_no_encoding_is_refused(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(TreelabelError, match="unknown encoding"):
        read_text(tmp_path, "d.csv", "text,label\na,A\n", encoding=encoding)


def test_taxonomies_of_old_windows_files_are_read_with_their_encoding(tmp_path: Path) -> None:
    data = "text,label\nx,café\n".encode("cp1252")
    put(tmp_path, "taxonomy.tsv", "Root\tcafé\n".encode("cp1252"))
    assert read_text(tmp_path, "d.csv", data, encoding="cp1252").names() == [["café"]]
    # One that treelabel wrote is UTF-8, whatever the data are.
    put(tmp_path, "taxonomy.tsv", "Root\tcafé\n")
    assert read_text(tmp_path, "d.csv", data, encoding="cp1252").names() == [["café"]]
    put(tmp_path, "taxonomy.tsv", b"Root\tcaf\xe9\n")
    with pytest.raises(TreelabelError, match=r"taxonomy\.tsv:1: byte 9 of the line \(0xe9\) is not utf-8"):
        read_text(tmp_path, "d.csv", "text,label\nx,café\n")


@pytest.mark.parametrize("bad", [b"\xff\xfebad,A\n", b"\xfe\xffbad,A\n", b"\xff\xfe\0\0,A\n"])
def test_the_first_row_tells_no_other_encoding_than_the_file(tmp_path: Path, bad: bytes) -> None:
    file = put(tmp_path, "d.csv", b"text,label\n" + bad + b"hello,B\n" * 1000)
    with pytest.raises(TreelabelError, match=r"d\.csv:2: .*utf-8"):
        read(file)
    with pytest.warns(SkippedRowsWarning, match="skipped 1 rows"):
        assert len(read(file, on_error="skip")) == 1000


def test_texts_that_only_have_a_few_nulls_are_not_utf_16() -> None:
    assert encoding_of(b"") == encoding_of(b"a") == encoding_of(b"a\0") == "utf-8"
    assert encoding_of(b"\0" * 100) == "utf-8"
    assert encoding_of(b"a\0b" * 100) == "utf-8"
    assert encoding_of("日本語".encode("utf-16-le")) == "utf-8"


def test_limits_hold_for_what_is_recoded(tmp_path: Path) -> None:
    long = ("text,label\n" + "a" * 5000 + ",A\n").encode("utf-16")
    with pytest.raises(TreelabelError, match=r"d\.csv:2: .*the limit line is 1,000"):
        read_text(tmp_path, "d.csv", long, limits=Limits(line=1000))
    bomb = gzip.compress(("text,label\n" + "a,A\n" * 100_000).encode("utf-16"))
    with pytest.raises(TreelabelError, match="the limit ratio is 10"):
        read_text(tmp_path, "d.csv.gz", bomb, limits=Limits(ratio=10, floor=1000))


# Other things that come with Excel


def test_a_txt_file_is_known_by_its_first_line(tmp_path: Path) -> None:
    def texts(content: str) -> list[str]:
        data: Dataset = read_text(tmp_path, "d.txt", content)
        return list(data.texts)

    assert texts("__label__A one\n__label__B two\n") == ["one", "two"]
    assert texts('{"text": "one", "label": "A"}\n') == ["one"]
    assert texts("text\tlabel\none\tA\n") == ["one"]
    with pytest.raises(TreelabelError, match=r"d\.txt: cannot tell the format by the ending '\.txt'"):
        texts("just a text\n")


@pytest.mark.parametrize("first", ["sep=;\n", '"sep=;"\r\n', "SEP=;\n"])
def test_the_first_line_may_tell_the_delimiter(tmp_path: Path, first: str) -> None:
    data = read_text(tmp_path, "d.csv", first + "text;label\na, b;A\n")
    assert list(data.texts) == ["a, b"]
    with pytest.raises(TreelabelError, match=r"d\.csv:4: 3 fields"):
        read_text(tmp_path, "d.csv", first + "text;label\na;A\na;b;c\n")


WESTERN = {
    "German": "Die Größe für schöne Bücher, Müller’s Straße – 5 € „Ärger“",
    "French": "L’été où j’étais à Nîmes, ça coûte cher : naïf, cœur",
    "Spanish": "¿Dónde está el niño? mañana, acción, pingüino",
    "Portuguese": "não, coração, você, à ação, português, último",
    "Italian": "perché, città, più, così, è",
    "Danish": "rød grød med fløde på æble ål",
    "Swedish": "räksmörgås på ön, kött",
    "Dutch": "ideeën, coëfficiënt, één, reünie",
    "English": "“It’s a café” – naïve… résumé",
}
OTHER_CODE_PAGES = {
    "cp1251": "Привет, как дела? Хорошо",
    "koi8-r": "Привет, как дела? Хорошо",
    "cp1250": "Příliš žluťoučký kůň; řeka, číslo, děti, mít",
    "iso8859-2": "Zażółć gęślą jaźń, łódź",
    "cp1253": "Καλημέρα κόσμε",
    "cp1254": "Işık, şeker, güneş, çocuk, ağaç, öğrenci",
    "cp1255": "שלום עולם",
    "cp1257": "Žąsis, šuo, ėjo, ūkis",
    "shift-jis": "日本語のテキスト,ラベル",
    "gbk": "中文文本，标签",
    "cp949": "한국어 텍스트",
    "big5": "中文文本標籤",
}


@pytest.mark.parametrize("language", WESTERN)
def test_cp1252_is_told_by_clear_evidence_only(language: str) -> None:
    text = WESTERN[language]
    assert western_text(text.encode("cp1252")) is not None
    # The same text in UTF-8, DOS and Mac encodings, damaged, and beside UTF-8.
    for encoding in ("utf-8", "cp437", "cp850", "mac-roman"):
        assert western_text(text.encode(encoding, "ignore")) is None, encoding
    assert western_text(text.encode("cp1252") + b"\x81") is None
    assert western_text(text.encode("cp1252") + b"\0") is None
    assert western_text(text.encode("cp1252") + " für".encode()) is None


@pytest.mark.parametrize("encoding", OTHER_CODE_PAGES)
def test_other_code_pages_are_not_taken_for_cp1252(encoding: str) -> None:
    assert western_text(OTHER_CODE_PAGES[encoding].encode(encoding, "ignore")) is None


def test_little_evidence_is_none() -> None:
    assert western_text("ein schöner Tag, für".encode("cp1252")) is None
    assert western_text("ein schöner Tag, für dich, über".encode("cp1252")) is not None
    assert western_text(b"plain") is None
