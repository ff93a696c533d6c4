"""The bodies of HBGL: attention over a text and what is appended to it, by a transformer or a small decoder."""

import inspect
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from treelabel.core.errors import TreelabelError
from treelabel.neural.systems.hbgl_labels import SPREAD

DECODER_LAYERS = 2
# Added to the attention that is not allowed; finite in single precision and in bfloat16.
FORBIDDEN = torch.finfo(torch.bfloat16).min


class ReadText(NamedTuple):
    """A text that a transformer has read: its tokens, its mask, and the keys and values of all layers."""

    ids: Tensor
    mask: Tensor
    cache: Any


class BackboneBody:
    """One pass of a transformer over text | appended positions, whose attention a four-dimensional mask restricts.

    Parameters
    ----------
    backbone
        A transformer, wrapped by peft or not.
    depth
        The number of levels: as many positions are kept free after a text, which is cut if it is too long.
    """

    def __init__(self, backbone: Any, depth: int) -> None:
        self.backbone, self.depth = backbone, depth
        base = backbone.get_base_model() if hasattr(backbone, "get_base_model") else backbone
        self.arguments = set(inspect.signature(base.forward).parameters)
        self.segments = "token_type_ids" in self.arguments and getattr(base.config, "type_vocab_size", 0) > 1
        tables = [m for name, m in base.named_modules() if name.endswith("position_embeddings")]
        table = tables[0] if tables and isinstance(tables[0], nn.Embedding) else None
        # RoBERTa counts positions from its padding id on.
        self.first = 0 if table is None or table.padding_idx is None else table.padding_idx + 1
        self.longest = None if table is None else table.num_embeddings - self.first - depth

    def states(self, text: Sequence[Any] | None, vectors: Tensor, levels: Tensor, allowed: Tensor) -> Tensor:
        """Return the hidden states of what is appended; all of it attends to all of the text, never the other way.

        Parameters
        ----------
        text
            A text as `read` returned it; None for appended positions alone.
        vectors
            What is appended, n × S × width.
        levels
            The level of each appended position, from 1 on, shape (S,); 0 is the root.
        allowed
            Whether an appended position (row) attends to another (column), S × S.

        Returns
        -------
        Tensor
            n × S × width.
        """
        if not isinstance(text, ReadText):
            return self._run(text, vectors, levels, allowed)
        result = self._run(text[:2], vectors, levels, allowed, text.cache, text.mask.shape[1])
        text.cache.crop(-vectors.shape[1])
        return result

    def read(self, text: Sequence[Tensor]) -> Sequence[Any]:
        """Compute once what `states` needs of a text at every level: the text sees nothing of what is appended.

        These are keys and values, where a transformer reuses them and none are to be trained.
        """
        if "past_key_values" not in self.arguments or torch.is_grad_enabled():
            return text
        from transformers import DynamicCache

        ids, mask = text[0][:, : self.longest], text[1][:, : self.longest]
        cache, nothing = DynamicCache(), self.backbone.get_input_embeddings()(ids[:, :0])
        self._run((ids, mask), nothing, ids.new_zeros(0), ids.new_zeros(0, 0), cache)
        # Some encoders take a cache and leave it empty.
        return ReadText(ids, mask, cache) if cache.get_seq_length() == ids.shape[1] else text

    def _run(
        self,
        text: Sequence[Tensor] | None,
        vectors: Tensor,
        levels: Tensor,
        allowed: Tensor,
        cache: Any = None,
        start: int = 0,
    ) -> Tensor:
        """Return the states of appended vectors; positions before `start` are in the cache."""
        count, tail = vectors.shape[:2]
        if text is None:
            mask, positions = levels.new_zeros(count, 0), levels.expand(count, -1)
        else:
            ids, mask = text[0][:, : self.longest], text[1][:, : self.longest]
            vectors = torch.cat([self.backbone.get_input_embeddings()(ids), vectors], 1)
            # Counted from the end of each text, not of the longest in its batch.
            after = mask.sum(1, keepdim=True) + levels - 1
            positions = torch.cat([torch.arange(ids.shape[1], device=ids.device).expand(count, -1), after], 1)
        length, total = mask.shape[1], mask.shape[1] + tail
        seen = torch.zeros(count, 1, total, total, dtype=torch.bool, device=vectors.device)
        seen[..., :length] = mask.bool()[:, None, None]
        seen[..., length:, length:] = allowed
        arguments = {"inputs_embeds": vectors[:, start:], "position_ids": positions[:, start:] + self.first}
        if self.segments:
            segments = (torch.arange(start, total, device=levels.device) >= length).long() * (text is not None)
            arguments["token_type_ids"] = segments.expand(count, -1)
        if cache is not None:
            arguments["past_key_values"] = cache
        # A sum works for every kind of attention; only some take booleans.
        added = torch.zeros_like(seen, dtype=vectors.dtype).masked_fill(~seen, FORBIDDEN)[:, :, start:]
        hidden: Tensor = self.backbone(attention_mask=added, **arguments).last_hidden_state
        return hidden[:, length - start :]

    def check(self, width: int, runs: bool) -> None:
        """Refuse a transformer that takes no vectors, has too few positions or, where it runs, attends to too much."""
        missing = sorted({"inputs_embeds", "position_ids", "attention_mask"} - self.arguments)
        kind = type(self.backbone).__name__
        if missing:
            raise TreelabelError(
                f"HBGL cannot train this encoder: {kind} does not take {' and '.join(missing)}, which label vectors "
                "and their positions need; give one of BERT's family, or use it frozen (mode=head)"
            )
        words = self.backbone.get_input_embeddings().weight.shape[1]
        if words != width:
            raise TreelabelError(
                f"HBGL cannot train this encoder: its word vectors have {words} numbers and its hidden states {width}, "
                "and labels are both; give one where they are equally wide, or use it frozen (mode=head)"
            )
        if self.longest is not None and self.longest < 1:
            raise TreelabelError(
                f"HBGL writes one position per level after the text, but the encoder has {self.longest + self.depth} "
                f"positions and the hierarchy {self.depth} levels"
            )
        if runs and not self._honours_masks(width):
            raise TreelabelError(
                f"HBGL cannot train this encoder: {kind} does not follow a four-dimensional attention mask, so that "
                "labels would see the answers; give one of BERT's family, or use it frozen (mode=head)"
            )

    def _honours_masks(self, width: int) -> bool:
        """Return whether a position is left unchanged by one that it must not attend to, and changed by another."""
        device, trains = next(self.backbone.parameters()).device, self.backbone.training
        vectors = torch.sin(torch.arange(3 * width, device=device)).view(1, 3, width)
        levels, allowed = torch.tensor([0, 1, 1], device=device), torch.eye(3, dtype=torch.bool, device=device)
        allowed[0, 1] = True
        self.backbone.eval()
        try:
            with torch.no_grad():
                one, two, three = (
                    self.states(None, torch.cat([vectors[:, :1], vectors[:, 1:] * scale[:, None]], 1), levels, allowed)
                    for scale in torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0]], device=device)
                )
        except (TypeError, ValueError, RuntimeError, AttributeError, IndexError, KeyError):
            return False
        finally:
            self.backbone.train(trains)
        return torch.allclose(one[:, 0], two[:, 0], atol=1e-5) and not torch.equal(one[:, 0], three[:, 0])


class DecoderLayer(nn.Module):
    """Attention among appended positions, attention to a text, and a hidden layer, each added to what comes in."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        heads = math.gcd(width, 8)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.among = nn.MultiheadAttention(width, heads, dropout, batch_first=True)
        self.across = nn.MultiheadAttention(width, heads, dropout, batch_first=True)
        self.hidden = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, vectors: Tensor, allowed: Tensor, text: Sequence[Tensor] | None) -> Tensor:
        """Return the next layer's inputs.

        Parameters
        ----------
        vectors
            n × S × width.
        allowed
            S × S.
        text
            Token states (n × T × width) and whether to ignore each (n × T), or None.

        Returns
        -------
        Tensor
            n × S × width.
        """
        asked = self.norms[0](vectors)
        vectors = vectors + self.dropout(self.among(asked, asked, asked, attn_mask=~allowed, need_weights=False)[0])
        if text is not None:
            states, ignored = text
            asked = self.norms[1](vectors)
            result = self.across(asked, states, states, key_padding_mask=ignored, need_weights=False)[0]
            vectors = vectors + self.dropout(result)
        last: Tensor = vectors + self.dropout(self.hidden(self.norms[2](vectors)))
        return last


class Decoder(nn.Module):
    """The body over a frozen encoder: a small transformer decoder, which attends to known token states.

    Parameters
    ----------
    states_width
        The width of token states.
    width
        The width of the decoder and of label embeddings.
    depth
        The number of levels.
    dropout
        Dropout in training.
    """

    def __init__(self, states_width: int, width: int, depth: int, dropout: float) -> None:
        super().__init__()
        self.narrow = nn.Identity() if states_width == width else nn.Linear(states_width, width, bias=False)
        self.positions = nn.Embedding(depth + 1, width)
        nn.init.normal_(self.positions.weight, std=SPREAD)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(DecoderLayer(width, dropout) for _ in range(DECODER_LAYERS))

    def read(self, text: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the states of a text as wide as the decoder, and which to ignore."""
        ignored = text[1] == 0
        # A text without tokens sees padding rather than nothing, whose attention is not a number.
        ignored[:, 0] = False
        return self.narrow(text[0]), ignored

    def states(self, text: Sequence[Any] | None, vectors: Tensor, levels: Tensor, allowed: Tensor) -> Tensor:
        """Return the hidden states of what is appended: see `BackboneBody.states`."""
        hidden: Tensor = self.norm(vectors + self.positions(levels))
        for layer in self.layers:
            hidden = layer(hidden, allowed, text)
        return hidden
