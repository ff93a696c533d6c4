"""An encoder whose rows are kept on disk."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from treelabel.core.errors import TreelabelError
from treelabel.core.progress import progress_bar
from treelabel.core.strings import require_column
from treelabel.core.types import FloatArray
from treelabel.encoders.files import cache_folder
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.row_cache import RowCache, cache_name


class CachedEncoder:
    """An encoder whose rows are kept on disk by the hash of its fingerprint and the text; texts are not kept.

    Rows of an encoder that says that it does not keep them (`keeps_rows`) are computed every time.

    Rows are stored batch by batch, so that a long run that is interrupted resumes where it was. They are the same with
    a cache and without one: see `RowCache` for what happens where it is damaged or cannot be written.

    Parameters
    ----------
    encoder
        The encoder that computes rows which are not stored yet.
    folder
        Where rows are stored; by default in `cache_folder()`.
    batch_size
        Texts that are encoded and stored at a time.
    """

    def __init__(self, encoder: Encoder, folder: Path | None = None, batch_size: int = 1024) -> None:
        self.encoder, self.batch_size = encoder, batch_size
        self.name, self.fingerprint = encoder.name, encoder.fingerprint
        self._folder = folder

    def transform(self, texts: Sequence[str], progress: bool | None = None) -> FloatArray:
        """Return one row per text, encoding every distinct text that is not stored yet once.

        Parameters
        ----------
        progress
            Whether to show a progress bar; None shows one on a terminal.

        Returns
        -------
        FloatArray
            n × width.
        """
        require_column(texts, "texts")
        if not getattr(self.encoder, "keeps_rows", True):
            return np.asarray(self.encoder.transform(texts), np.float32)
        # Half a surrogate pair is no character, but a text may contain one.
        encoded = (f"{self.fingerprint}\0{text}".encode("utf-8", "surrogatepass") for text in texts)
        keys = [hashlib.sha256(text).digest() for text in encoded]
        if not keys:
            return np.zeros((0, 0), np.float32)
        folder = cache_folder() if self._folder is None else self._folder
        with RowCache(folder / cache_name(self.fingerprint)) as cache:
            rows = self._rows(dict(zip(keys, texts, strict=True)), cache, progress)
        return np.stack([rows[key] for key in keys])

    def _rows(self, texts: dict[bytes, str], cache: RowCache, progress: bool | None) -> dict[bytes, FloatArray]:
        """Read the rows of texts from the cache, and compute the missing ones."""
        rows = cache.read(list(texts))
        missing = {key: text for key, text in texts.items() if key not in rows}
        rows |= self._compute(missing, cache, progress)
        # The width of today is right; stored rows of another one are those of an older encoder.
        width = len(rows[next(iter(missing or texts))])
        other = {key: text for key, text in texts.items() if len(rows[key]) != width}
        return rows | self._compute(other, cache, progress, width)

    def _compute(
        self, texts: dict[bytes, str], cache: RowCache, progress: bool | None, width: int | None = None
    ) -> dict[bytes, FloatArray]:
        """Encode texts and store their rows batch by batch; all rows must have the same width."""
        waiting, computed = list(texts.items()), dict[bytes, FloatArray]()
        with progress_bar("embedding", len(waiting), progress) as done:
            for start in range(0, len(waiting), self.batch_size):
                part = waiting[start : start + self.batch_size]
                keys = [key for key, _ in part]
                # A copy: an encoder may reuse its memory for the next batch.
                rows = np.array(self.encoder.transform([text for _, text in part]), np.float32, order="C")
                if rows.ndim != 2 or len(rows) != len(part):
                    raise TreelabelError(
                        f"the encoder {self.name} gave an array of shape {rows.shape} for {len(part)} texts"
                    )
                if not np.isfinite(rows).all():
                    raise TreelabelError(
                        f"the encoder {self.name} gave numbers that are not finite; nothing of them was stored"
                    )
                if width not in (None, rows.shape[1]):
                    raise TreelabelError(
                        f"the encoder {self.name} gave {width} numbers for some texts and {rows.shape[1]} for others"
                    )
                width = rows.shape[1]
                cache.write(keys, rows)
                computed.update(zip(keys, rows, strict=True))
                done(start + len(part))
        return computed
