"""How much a Parquet file may hold: what its metadata promises, and how many rows fit into memory at once.

A column may be small in the file and huge in memory in three ways: its pages are compressed, a long value stands once
in a dictionary and is referred to by every row (or shares its beginning with the one before it), or a list repeats
nothing a billion times.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from treelabel.core.errors import TreelabelError
from treelabel.core.limits import Limits

# Bytes that the rows of a batch may take where one long value may stand in all of them.
BUDGET = 8_000_000
# A value in these may be long although it takes few bytes.
DICTIONARIES = frozenset({"RLE_DICTIONARY", "PLAIN_DICTIONARY"})
SHARED_BEGINNINGS = "DELTA_BYTE_ARRAY"


def check_size(path: Path, size: int, limits: Limits) -> None:
    """Refuse a file whose values take, or will take, many times more than the file itself.

    Parameters
    ----------
    path
        The file.
    size
        The bytes that its values take.
    limits
        How many times the size of the file this may be.
    """
    packed = path.stat().st_size
    if limits.exceeds("floor", size) and limits.exceeds("ratio", size / max(1, packed)):
        raise TreelabelError(
            f"{path}: {packed:,} bytes in the file become {size:,} or more in memory; {limits.hint('ratio')}"
        )


def promised_size(metadata: pq.FileMetaData) -> int:
    """Sum up the bytes that the columns say they take when decompressed, every value being at least one."""
    chunks = [metadata.row_group(group).column(number) for group, number in _chunk_indices(metadata)]
    return sum(max(chunk.total_uncompressed_size, chunk.num_values) for chunk in chunks)


def _chunk_indices(metadata: pq.FileMetaData) -> list[tuple[int, int]]:
    return [(group, number) for group in range(metadata.num_row_groups) for number in range(metadata.num_columns)]


def decoded_size(array: Any) -> int:
    """Count the bytes of a column, taking what refers to a dictionary for the whole value."""
    if not pa.types.is_dictionary(array.type):
        return int(array.nbytes)
    if not (pa.types.is_string(array.type.value_type) or pa.types.is_large_string(array.type.value_type)):
        return int(array.nbytes)
    return pc.sum(pc.binary_length(array.dictionary).take(array.indices)).as_py() or 0


def rows_at_once(path: Path, file: pq.ParquetFile, group: int, most: int, limits: Limits) -> int:
    """Find how many rows of a row group are sure to fit into the budget of a batch.

    Returns
    -------
    The number of rows, at least 1.
    """
    longest = 1
    chunks = file.metadata.row_group(group)
    every = [chunks.column(number) for number in range(file.metadata.num_columns)]
    names = [chunk.path_in_schema for chunk in every if DICTIONARIES & set(chunk.encodings)]
    with pq.ParquetFile(path, metadata=file.metadata, read_dictionary=names) as packed:
        columns = [file.metadata.schema.column(number) for number in range(len(every))]
        lengths = [_longest_value(packed, *each, group) for each in zip(every, columns, strict=True)]
    for chunk, column, length in zip(every, columns, lengths, strict=True):
        if column.max_repetition_level > 0:
            # All values of a list column may stand in one row.
            check_size(path, length * chunk.num_values, limits)
        else:
            longest = max(longest, length)
    return max(1, min(most, BUDGET // longest))


def _longest_value(packed: pq.ParquetFile, chunk: Any, column: Any, group: int) -> int:
    """Bound the bytes of a value that takes less than its length in the file; 0 if there is none."""
    if chunk.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return int(column.length)
    if chunk.physical_type != "BYTE_ARRAY":
        return 0
    if SHARED_BEGINNINGS in chunk.encodings:
        return int(chunk.total_uncompressed_size)
    if not DICTIONARIES & set(chunk.encodings):
        return 0
    name = chunk.path_in_schema
    # One row brings the whole dictionary with it, and nothing else of the column.
    batch = next(packed.iter_batches(1, row_groups=[group], columns=[name]), None)
    return 0 if batch is None else max((_longest_text(array) for array in batch.columns), default=0)


def _longest_text(array: pa.Array) -> int:
    """Find the longest entry of the dictionaries in an array."""
    if pa.types.is_dictionary(array.type):
        return pc.max(pc.binary_length(array.dictionary)).as_py() or 0
    if pa.types.is_struct(array.type):
        return max((_longest_text(child) for child in array.flatten()), default=0)
    if pa.types.is_map(array.type):
        return max(_longest_text(array.keys), _longest_text(array.items))
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return _longest_text(array.values)
    return 0
