"""The first tokens of texts, without tokenising the whole of a long one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def first_tokens(tokenizer: "Tokenizer", texts: Sequence[str], length: int) -> list[list[int]]:
    """Return the first token ids of texts, as the tokenizer truncates them.

    The beginning of a text, up to a space, has the tokens that the whole text begins with; where it has too few, a
    longer beginning is tokenised.

    Parameters
    ----------
    tokenizer
        A tokenizer that truncates at `length`.
    texts
        The texts.
    length
        The most tokens of a text.

    Returns
    -------
    list[list[int]]
        Token ids, one list per text.
    """
    found: list[list[int]] = [[]] * len(texts)
    waiting, characters = list(range(len(texts))), 16 * length
    while waiting:
        starts = [_start(texts[at], characters) for at in waiting]
        encoded = tokenizer.encode_batch_fast(starts)
        for at, each in zip(waiting, encoded, strict=True):
            found[at] = each.ids
        waiting = [
            at
            for at, start in zip(waiting, starts, strict=True)
            if len(start) < len(texts[at]) and len(found[at]) < length
        ]
        characters *= 8
    return found


def _start(text: str, characters: int) -> str:
    """Cut a text before a space; one without spaces is left whole."""
    space = -1 if len(text) <= characters else text.rfind(" ", 0, characters)
    return text if space < 1 else text[:space]
