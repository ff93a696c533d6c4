"""Encodings of text files: told by their first bytes, and read as UTF-8 whatever they are."""

import codecs
import re
from collections import Counter
from dataclasses import dataclass
from io import BufferedReader, RawIOBase
from typing import IO, Any, cast

# Those of UTF-32 begin with those of UTF-16.
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)
# Of every second byte, how many must be NUL before a file without a mark is taken for UTF-16, and how many of the
# others may be: texts in Latin letters have nearly all and none, and other texts are never like it.
MOST_ARE_NUL, FEW_ARE_NUL = 0.5, 0.05
# How much of the beginning is looked at.
HEAD = 4096
PIECE = 1 << 18
# What stands for bytes that mean nothing: encoded, it is no UTF-8, so that its line is refused as any other wrong one.
MEANINGLESS = "\udcff"
ON_ERROR = "treelabel:meaningless"

WESTERN = "cp1252"
# The letters beyond ASCII of languages that are written in cp1252. Other code pages give the same bytes other letters,
# which as cp1252 look like a mixture of these languages, or like none.
ALPHABETS = (
    "äöüßéèàáêôñç",
    "àâçéèêëîïôöûùüÿœæñ",
    "áéíóúüñªºç",
    "áâãàçéêíóôõúüªº",
    "àèéìíîòóùúªº",
    "æøåéèêóòâäöü",
    "åäöéèüáàšž",
    "ëïéèêöüáóíúàâç",
    "àçèéíïòóúü",
)
# Marks beyond ASCII that stand in plain text, and those of them that may stand between two letters.
MARKS_IN_TEXT = "‘’“”„‚‹›«»–—…•·°§€£¥©®™±×½¼¾²³µ¿¡\u00a0\u00ad"
MARKS_IN_WORDS = "’–—…·°\u00a0\u00ad"
# How many characters beyond ASCII are evidence, and how rare a letter is that says nothing of the language.
LEAST_EVIDENCE, RARE_LETTER = 3, 0.02
WORD = re.compile(r"[^\W\d_]+")

codecs.register_error(ON_ERROR, lambda error: (MEANINGLESS, cast("UnicodeDecodeError", error).end))


def encoding_of(head: bytes, default: str = "utf-8") -> str:
    r"""Tell the encoding of a file by its first bytes: a byte order mark, or the NULs that UTF-16 has.

    Parameters
    ----------
    head : bytes
        The first bytes; a few thousand are enough.
    default : str
        The encoding where the bytes say nothing; it must be known (see `is_known`).

    Returns
    -------
    str
        A mark wins over the default. "utf-16" and "utf-32" without a mark are little-endian, as on Windows, unless
        the NULs say otherwise.

    >>> encoding_of(b"\xef\xbb\xbfa"), encoding_of("a,b\n".encode("utf-16")), encoding_of("a,b\n".encode("utf-16-be"))
    ('utf-8', 'utf-16-le', 'utf-16-be')
    >>> encoding_of(b"caf\xe9", "CP1252"), encoding_of(b"a\0b")
    ('cp1252', 'utf-8')
    """
    name = codecs.lookup(default).name.removesuffix("-sig")
    is_wide = name.startswith(("utf-16", "utf-32"))
    marked = next((encoding for mark, encoding in MARKS if head.startswith(mark)), None)
    if marked is not None and not (is_wide and marked == "utf-8"):
        return marked
    if name == "utf-32":
        return "utf-32-be" if head.startswith(b"\0\0\0") else "utf-32-le"
    if name == "utf-16" or (not is_wide and is_like_ascii(name)):
        return _by_nulls(head[:HEAD]) or ("utf-16-le" if is_wide else name)
    return name


def _by_nulls(head: bytes) -> str | None:
    pairs = len(head) // 2
    if pairs < 2:
        return None
    first, second = (head[start : 2 * pairs : 2].count(0) / pairs for start in (0, 1))
    if second >= MOST_ARE_NUL and first <= FEW_ARE_NUL:
        return "utf-16-le"
    return "utf-16-be" if first >= MOST_ARE_NUL and second <= FEW_ARE_NUL else None


@dataclass(frozen=True)
class WesternText:
    """Text in cp1252: how many characters beyond ASCII it has, and some of the words that have them."""

    characters: int
    words: tuple[str, ...]


def western_text(data: bytes) -> WesternText | None:
    r"""Tell whether bytes that are no UTF-8 are clearly text of a Western European language in cp1252.

    They are if nothing in them is UTF-8 beyond ASCII or a control character, all characters beyond ASCII are letters of
    one language or marks of plain text, letters stand among ASCII letters, and marks not within words. What is written
    in other code pages (Cyrillic, Greek, Central European, DOS, East Asian) fails one of these.

    Parameters
    ----------
    data : bytes
        The beginning of a file; what is cut off at its end does no harm.

    Returns
    -------
    WesternText or None
        None where the evidence is not clear, and for UTF-8.

    >>> western_text("für Größe, schön".encode("cp1252"))
    WesternText(characters=4, words=('für', 'Größe', 'schön'))
    >>> western_text("für Größe, schön".encode()), western_text("привет, как дела".encode("cp1251"))
    (None, None)
    """
    if data.isascii() or re.search(rb"[\x00-\x08\x0e-\x1f\x7f\x81\x8d\x8f\x90\x9d]", data):
        return None
    # A lead byte of UTF-8 with all that must follow it.
    if re.search(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}", data):
        return None
    text = data.decode(WESTERN)
    words = [word for word in WORD.findall(text) if not word.isascii()]
    letters = Counter(letter for word in words for letter in word.lower() if not letter.isascii())
    marks = [mark for mark in re.findall(r"[^\x00-\x7f]", text) if not WORD.match(mark)]
    count = letters.total() + len(marks)
    usual = {letter for letter, times in letters.items() if times > RARE_LETTER * letters.total()}
    is_language = any(usual <= set(alphabet) for alphabet in ALPHABETS)
    is_among_ascii = not any(re.search(r"[^\x00-\x7f]{3}", word) for word in words)
    are_usual_marks = set(marks) <= set(MARKS_IN_TEXT)
    within_words = re.search(rf"[^\W\d_](?![{MARKS_IN_WORDS}])[^\x00-\x7f\w][^\W\d_]", text)
    if count < LEAST_EVIDENCE or not (is_language and is_among_ascii and are_usual_marks) or within_words:
        return None
    return WesternText(count, tuple(dict.fromkeys(words))[:3])


def is_known(encoding: str) -> bool:
    """Return whether Python has an encoding of texts by this name.

    >>> is_known("cp1252"), is_known("klingon"), is_known("zlib")
    (True, False, False)
    """
    try:
        codecs.getincrementaldecoder(encoding)
        is_like_ascii(encoding)
    except (LookupError, ValueError):
        return False
    return True


def is_like_ascii(encoding: str) -> bool:
    """Return whether line breaks and plain letters are the same bytes as in ASCII, so that lines can be cut first.

    >>> is_like_ascii("latin-1"), is_like_ascii("utf-16-le"), is_like_ascii("cp037")
    (True, False, False)
    """
    try:
        return "a,\r\n".encode(encoding) == b"a,\r\n"
    except UnicodeError:
        return False


class AsUtf8(RawIOBase):
    """A stream in any encoding, read as UTF-8 a piece at a time; bytes that mean nothing become what is no UTF-8."""

    def __init__(self, stream: IO[bytes], encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)(ON_ERROR)
        self._waiting = memoryview(b"")
        self._is_over = False

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as one piece of the stream does."""
        while not self._waiting and not self._is_over:
            piece = self._stream.read(PIECE)
            self._is_over = not piece
            text = self._decoder.decode(piece, final=self._is_over)
            self._waiting = memoryview(text.encode("utf-8", "surrogatepass"))
        count = min(len(buffer), len(self._waiting))
        buffer[:count] = self._waiting[:count]
        self._waiting = self._waiting[count:]
        return count

    def readable(self) -> bool:
        """Return True."""
        return True


def peekable(stream: IO[bytes]) -> BufferedReader:
    """Return a stream whose first bytes can be looked at; one that can do so already is returned itself."""
    return cast("BufferedReader", stream) if hasattr(stream, "peek") else BufferedReader(cast("Any", stream), PIECE)
