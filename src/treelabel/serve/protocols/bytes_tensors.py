"""Bytes of the Open Inference Protocol: tensors of texts, and compressed requests."""

import struct
import zlib
from collections.abc import Sequence

from treelabel.serve.problems import ProblemError

LENGTH = struct.Struct("<I")
# Of zlib: recognise the header of gzip or zlib, whichever is there.
ANY_HEADER = zlib.MAX_WBITS | 32


def pack_texts(texts: Sequence[str]) -> bytes:
    r"""Write texts as UTF-8, each behind its length in 4 bytes, the lowest first.

    >>> pack_texts(["a", ""])
    b'\x01\x00\x00\x00a\x00\x00\x00\x00'
    """
    encoded = [text.encode() for text in texts]
    return b"".join(part for text in encoded for part in (LENGTH.pack(len(text)), text))


def unpack_texts(data: bytes) -> list[str]:
    r"""Read what `pack_texts` writes; 400 if it is cut short, or no UTF-8.

    >>> unpack_texts(b"\x01\x00\x00\x00a\x00\x00\x00\x00")
    ['a', '']
    """
    texts, start = [], 0
    try:
        while start < len(data):
            [size] = LENGTH.unpack_from(data, start)
            start += LENGTH.size + size
            if start > len(data):
                raise ValueError("cut short")
            texts.append(data[start - size : start].decode())
    except (ValueError, struct.error):
        raise ProblemError(400, "expected texts in UTF-8, each behind its length in 4 bytes") from None
    return texts


def decompress(data: bytes, encoding: str | None, most: int) -> bytes:
    """Decompress a request by its Content-Encoding.

    Parameters
    ----------
    data
        The body of the request.
    encoding
        None, identity, gzip or deflate; others are refused with 415.
    most
        Bytes that may come out; more are refused with 413.

    Returns
    -------
    bytes
    """
    if encoding in (None, "", "identity"):
        return data
    if encoding not in ("gzip", "deflate"):
        raise ProblemError(415, "expected a Content-Encoding of gzip or deflate, or none")
    decompressor = zlib.decompressobj(ANY_HEADER)
    try:
        whole = decompressor.decompress(data, most + 1)
    except zlib.error:
        raise ProblemError(400, f"the body is not compressed as its Content-Encoding says ({encoding})") from None
    if len(whole) > most:
        raise ProblemError(413, f"the decompressed body is larger than the limit max_body, {most:,} bytes")
    if not decompressor.eof:
        raise ProblemError(400, "the compressed body is cut short")
    return whole
