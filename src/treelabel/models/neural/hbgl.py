"""HBGL: BERT writes down the labels of a text level by level (Jiang et al., EMNLP 2022)."""

import inspect
import math
from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from treelabel.core.compute import LongArray
from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.losses.torch import TorchLoss
from treelabel.models.neural.featurizers import Featurizer
from treelabel.models.neural.gold import Gold, GoldLabels
from treelabel.models.neural.hbgl_labels import SPREAD, GlobalStage, LabelHead, pretrain_labels
from treelabel.models.neural.network import Network
from treelabel.models.neural.parts import Parts

DECODER_LAYERS = 2
# Added to the attention that is not allowed; finite in single precision and in bfloat16.
FORBIDDEN = torch.finfo(torch.bfloat16).min


class ReadText(NamedTuple):
    """A text that a transformer has read: its tokens, its mask, and the keys and values of all layers."""

    ids: Tensor
    mask: Tensor
    cache: Any


class Body(Protocol):
    """Attention over a text and what is appended to it."""

    def read(self, text: Sequence[Tensor]) -> Sequence[Any]:
        """Compute once what `states` needs of a text at every level: the text sees nothing of what is appended."""

    def states(self, text: Sequence[Any] | None, vectors: Tensor, levels: Tensor, allowed: Tensor) -> Tensor:
        """Return the hidden states of what is appended; all of it attends to all of the text, never the other way.

        Parameters
        ----------
        text
            (ids, mask) or (states, mask), as the network takes them, or what `read` returned; None for appended
            positions alone.
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


class BackboneBody(Body):
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
        """Return the hidden states of what is appended: see `Body.states`."""
        if not isinstance(text, ReadText):
            return self._run(text, vectors, levels, allowed)
        found = self._run(text[:2], vectors, levels, allowed, text.cache, text.mask.shape[1])
        text.cache.crop(-vectors.shape[1])
        return found

    def read(self, text: Sequence[Tensor]) -> Sequence[Any]:
        """Keep the keys and values of a text, where a transformer reuses them and none are to be trained."""
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
        given = {"inputs_embeds": vectors[:, start:], "position_ids": positions[:, start:] + self.first}
        if self.segments:
            segments = (torch.arange(start, total, device=levels.device) >= length).long()
            given["token_type_ids"] = segments.expand(count, -1)
        if cache is not None:
            given["past_key_values"] = cache
        # A sum works for every kind of attention; only some take booleans.
        added = torch.zeros_like(seen, dtype=vectors.dtype).masked_fill(~seen, FORBIDDEN)[:, :, start:]
        hidden: Tensor = self.backbone(attention_mask=added, **given).last_hidden_state
        return hidden[:, length - start :]

    def check(self, width: int) -> None:
        """Refuse a transformer that takes no vectors as inputs, or that attends to what it must not."""
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
        if not self._honours_masks(width):
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
            found = self.across(asked, states, states, key_padding_mask=ignored, need_weights=False)[0]
            vectors = vectors + self.dropout(found)
        last: Tensor = vectors + self.dropout(self.hidden(self.norms[2](vectors)))
        return last


class Decoder(nn.Module):
    """The body over a frozen encoder: a small transformer decoder, which attends to known token states."""

    def __init__(self, width: int, depth: int, dropout: float) -> None:
        super().__init__()
        self.positions = nn.Embedding(depth + 1, width)
        nn.init.normal_(self.positions.weight, std=SPREAD)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(DecoderLayer(width, dropout) for _ in range(DECODER_LAYERS))

    def read(self, text: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the states of a text, which are known."""
        return text

    def states(self, text: Sequence[Any] | None, vectors: Tensor, levels: Tensor, allowed: Tensor) -> Tensor:
        """Return the hidden states of what is appended: see `Body.states`."""
        if text is not None:
            text = (text[0], text[1] == 0)
            # A text without tokens sees padding rather than nothing, whose attention is not a number.
            text[1][:, 0] = False
        hidden: Tensor = self.norm(vectors + self.positions(levels))
        for layer in self.layers:
            hidden = layer(hidden, allowed, text)
        return hidden


class HbglNetwork(Network):
    """Hierarchy-guided BERT with global and local hierarchies: labels are written after the text, level by level.

    *Global stage*, when the network is made: label embeddings learn to predict masked labels of the hierarchy
    (`hbgl_labels`). *Local stage*, training: the sequence is text | D slots | D masks, D the depth. Slot i holds the
    sum of the embeddings of the document's labels at level i, or "end" below its last level. Mask i sees the text and
    the slots above it, and predicts the labels of level i. *Inference*: D steps; the labels that mask i predicts fill
    slot i. Over a frozen encoder a small decoder takes the place of the transformer.

    Differences from the paper and its program:

    - A label's score is the logit that the mask of its own level gave it. Slots are filled with labels of their level
      only: those with a probability above 1/2, or the best one unless "end" is likelier. The program compares all
      labels at each level.
    - A document says "end" at every level below its last one, and these masks are trained too, so that the scores of
      deep labels mean something for documents that end early. The program trains the first "end" only.
    - A sequence without "end" keeps its last label, and a document may have no label; the program drops the last label
      of a full-depth path, and turns an empty prediction into label 0. Its tables of leaves and parents are off by one
      in the global stage; here masked leaf siblings share their targets as published.
    - Slots are sums of embeddings as in the program; whether the paper means averages is not settled.
    - [CLS], "end" and [MASK] start as random vectors of the spread of word vectors, and the transform before scores
      as the identity followed by GELU and a norm, because a backbone comes without BERT's head for masked words; biases
      start where about one label is true at each level.
    - Texts are cut to the same length in training and at inference: D positions are kept free.

    The loss of a document is the binary cross-entropy summed over D masks and all labels: each true label counts once,
    as in the loss "bce". The logits of `bce` are what is returned; other losses are not used.

    At inference a text is read once, and each level adds a pass over as many positions as there are levels above it.
    Encoders that cannot reuse keys and values (BERT and RoBERTa can) take a pass over the text per level.

    Parameters
    ----------
    parts
        What the network is made of.
    global_steps, global_learning_rate, global_mask, global_batch_size
        See `GlobalStage`; by default those of the paper's run on WOS.
    slot_mask
        The probability that a slot is masked in training, so that no mask relies on the labels above alone.
    """

    pattern: Tensor
    slot_levels: Tensor

    def __init__(
        self,
        parts: Parts,
        *,
        global_steps: int = 300,
        global_learning_rate: float = 1e-3,
        global_mask: float = 0.15,
        global_batch_size: int = 32,
        slot_mask: float = 0.5,
    ) -> None:
        hierarchy = parts.hierarchy
        super().__init__(parts.backbone, parts.pooling, LabelHead(parts.width, len(hierarchy), parts.name_vectors))
        self.hierarchy, self.depth, self.slot_mask = hierarchy, hierarchy.max_depth, slot_mask
        self.decoder = Decoder(parts.width, self.depth, parts.dropout) if parts.backbone is None else None
        self.register_buffer("pattern", level_attention(self.depth), persistent=False)
        self.register_buffer("slot_levels", torch.arange(1, self.depth + 1).repeat(2), persistent=False)
        if parts.name_vectors is not None:
            if parts.backbone is not None:
                BackboneBody(parts.backbone, self.depth).check(parts.width)
            self.global_losses = self.pretrain_labels(
                GlobalStage(global_steps, global_learning_rate, global_mask, global_batch_size), parts
            )

    @property
    def body(self) -> Body:
        """The transformer that is trained, or the decoder over a frozen one."""
        return BackboneBody(self.backbone, self.depth) if self.decoder is None else self.decoder

    # The global stage

    def pretrain_labels(self, stage: GlobalStage, parts: Parts) -> list[float]:
        """Train label embeddings on the hierarchy alone, with everything else frozen; dropout is on.

        Parameters
        ----------
        stage
            The settings.
        parts
            Whether to end early, and whether to show a progress bar.

        Returns
        -------
        list of float
            The loss of each step.
        """
        head = self.outputs
        if torch.cuda.is_available():
            self.cuda()
        trained = [p for p in self.parameters() if p.requires_grad and p is not head.embeddings]
        body, was_training = self.body, self.training
        self.train()
        try:
            for parameter in trained:
                parameter.requires_grad_(False)
            return pretrain_labels(head, partial(body.states, None), self.hierarchy, stage, parts.stop, parts.progress)
        finally:
            for parameter in trained:
                parameter.requires_grad_(True)
            self.train(was_training)

    # The local stage

    def prepare(self, loss: TorchLoss, labels: Any) -> GoldLabels:
        """Prepare labels, which the network sees in training: see `Network.prepare`."""
        return GoldLabels.of(loss, labels)

    def penalty(self, loss: TorchLoss) -> Tensor:
        """Return 0: outputs share their weights with inputs."""
        nothing: Tensor = self.outputs.bias.new_zeros(())
        return nothing

    def losses(self, inputs: Sequence[Tensor], truth: Gold, loss: TorchLoss) -> Tensor:
        """Return the cross-entropy of all masks, given the true labels of the levels above: see `Network.losses`."""
        targets = self.targets(truth.nodes)
        slots = self.slots(targets)
        if self.training:
            hidden = torch.rand(slots.shape[:2], device=slots.device) < self.slot_mask
            slots = torch.where(hidden.unsqueeze(-1), self.outputs.mask, slots)
        scores = self.level_scores(inputs, slots).float()
        return functional.binary_cross_entropy_with_logits(scores, targets, reduction="none").sum((1, 2))

    def targets(self, nodes: Tensor) -> Tensor:
        """Return what each mask predicts: n × depth × (labels and "end"), of true labels closed under ancestors."""
        found = nodes.new_zeros(len(nodes), self.depth, nodes.shape[1] + 1)
        for number in range(self.depth):
            level = self.hierarchy.level(number + 1)
            found[:, number, level] = nodes[:, level]
        # Labels are closed under ancestors: a level without any is below the last one.
        found[..., -1] = 1 - found.amax(-1)
        return found

    def slots(self, targets: Tensor) -> Tensor:
        """Return what stands in the slots: the sum of the true embeddings of each level, without their gradient."""
        found: Tensor = targets @ self.outputs.embeddings.detach()
        return found

    def level_scores(self, inputs: Sequence[Tensor], slots: Tensor) -> Tensor:
        """Score all labels at all levels in one pass, given the labels above each.

        Parameters
        ----------
        inputs
            What the network takes of documents.
        slots
            n × depth × width.

        Returns
        -------
        Tensor
            n × depth × (labels and "end").
        """
        masks = self.outputs.mask.expand(len(slots), self.depth, -1)
        hidden = self.body.states(inputs, torch.cat([slots, masks], 1), self.slot_levels, self.pattern)
        found: Tensor = self.outputs(hidden[:, self.depth :])
        return found

    # Inference

    def logits(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return the logit of every label at its own level, given the labels predicted above: documents × nodes."""
        return self._written(inputs)[0]

    def sequence(self, inputs: Sequence[Tensor]) -> list[list[LongArray]]:
        """Return what the paper predicts: the labels of each level of each document, up to its "end"."""
        kept = self._written(inputs)[1].cpu().numpy()
        levels = [self.hierarchy.level(number + 1) for number in range(self.depth)]
        found = ([level.start + np.flatnonzero(row[level]) for level in levels] for row in kept)
        return [list(takewhile(len, labels)) for labels in found]

    def _written(self, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Write labels level by level; return the logits of all labels and which are kept."""
        head, body = self.outputs, self.body
        text = body.read(inputs)
        slots, logits, kept = head.mask.new_zeros(len(inputs[0]), 0, len(head.mask)), [], []
        for number in range(self.depth):
            level = self.hierarchy.level(number + 1)
            ids = torch.tensor([*range(level.start, level.stop), len(self.hierarchy)], device=slots.device)
            # The slots above, and the mask of this level.
            seen = torch.tensor([*range(number), self.depth + number], device=slots.device)
            vectors = torch.cat([slots, head.mask.expand(len(slots), 1, -1)], 1)
            hidden = body.states(text, vectors, self.slot_levels[seen], self.pattern[seen][:, seen])
            scores = head(hidden[:, -1], ids)
            chosen = keep(scores)
            logits.append(scores[:, :-1])
            kept.append(chosen[:, :-1])
            slots = torch.cat([slots, (chosen.to(slots.dtype) @ head.embeddings[ids]).unsqueeze(1)], 1)
        return torch.cat(logits, 1), torch.cat(kept, 1)


def written_labels(network: Any, featurizer: Featurizer, texts: Strings) -> list[list[LongArray]]:
    """Write the labels of texts, batch by batch.

    Parameters
    ----------
    network
        A trained HbglNetwork.
    featurizer
        How it sees texts.
    texts
        The texts.

    Returns
    -------
    list of list of LongArray
        The labels of each level of each text: see `HbglNetwork.sequence`.
    """
    inputs = featurizer.inputs(texts)
    found: list[list[LongArray]] = [[]] * len(texts)
    with torch.inference_mode():
        for rows in featurizer.batches(inputs):
            for row, levels in zip(rows.tolist(), network.sequence(inputs.batch(rows)), strict=True):
                found[row] = levels
    return found


def level_attention(depth: int) -> Tensor:
    """Return who attends to whom among slots | masks: slot i to slots ≤ i, mask i to slots < i and itself.

    >>> level_attention(2).int().tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]]
    """
    square = torch.ones(depth, depth, dtype=torch.bool)
    none, itself = torch.zeros_like(square), torch.eye(depth, dtype=torch.bool)
    return torch.cat([torch.cat([square.tril(), none], 1), torch.cat([square.tril(-1), itself], 1)])


def keep(scores: Tensor) -> Tensor:
    """Choose the labels of a level: the likely ones, else the best one or "end", which is last.

    >>> keep(torch.tensor([[1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [-2.0, -2.0, -1.0]])).int().tolist()
    [[1, 1, 0], [1, 0, 0], [0, 0, 1]]
    """
    likely = scores > 0
    likely[:, -1] = False
    best = functional.one_hot(scores.argmax(1), scores.shape[1]).bool()
    return torch.where(likely.any(1, keepdim=True), likely, best)
