"""HBGL: BERT writes down the labels of a text level by level (Jiang et al., EMNLP 2022)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from treelabel.core.errors import TreelabelError
from treelabel.core.stopping import StopSignal
from treelabel.core.strings import Strings
from treelabel.core.types import LongArray
from treelabel.core.validation import Between
from treelabel.models.settings import Share, Width, not_fitted
from treelabel.neural.featurizers import TextFeaturizer
from treelabel.neural.hardware import threads_for
from treelabel.neural.losses.base import Loss
from treelabel.neural.losses.truth import LabelTargets
from treelabel.neural.model import NeuralModel
from treelabel.neural.network import Network, NetworkSpec
from treelabel.neural.systems.hbgl_bodies import BackboneBody, Decoder
from treelabel.neural.systems.hbgl_labels import GlobalStage, LabelHead, pretrain_labels
from treelabel.neural.training_arguments import Recipe, make_recipes
from treelabel.selection.evidence import Stage


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
    - [CLS], "end" and [MASK] start as random vectors of the spread of word vectors, where the program takes those of
      the vocabulary, and the transform before scores as the identity followed by GELU and a norm, because a backbone
      comes without BERT's head for masked words; biases start where about one label is true at each level.
    - The share of masked labels in the global stage is constant (the program's rises on RCV1), and at least one label
      is masked. Over a frozen encoder, label embeddings start at the states of the tokens of their names.
    - Texts are cut to the same length in training and at inference: D positions are kept free, for which the last
      tokens of a very long text are left out.

    The loss of a document is the binary cross-entropy summed over D masks and all labels: each true label counts once,
    as in the loss "bce". The logits of `bce` are what is returned; other losses are not used.

    At inference a text is read once, and each level adds a pass over as many positions as there are levels down to it.
    Encoders that cannot reuse keys and values (BERT and RoBERTa can) take a pass over the text per level.

    Parameters
    ----------
    spec
        What the network is made of.
    settings
        Those of the system.
    """

    pattern: Tensor
    slot_levels: Tensor

    def __init__(self, spec: NetworkSpec, settings: "Hbgl") -> None:
        if spec.objective.name != "bce":
            raise TreelabelError(f"the model hbgl is trained with the loss bce, found {spec.objective.name!r}")
        hierarchy, width, names = spec.hierarchy, spec.width, spec.name_vectors
        decoder = None
        if spec.backbone is None:
            width = min(width, settings.decoder_size)
            decoder = Decoder(spec.width, width, hierarchy.max_depth, spec.dropout)
            # Labels start where their names are, seen as the decoder sees texts.
            names = None if names is None else tuple(decoder.narrow(each).detach() for each in names)
        super().__init__(spec.backbone, spec.pooling, LabelHead(width, len(hierarchy), names))
        self.hierarchy, self.depth, self.decoder = hierarchy, hierarchy.max_depth, decoder
        self.slot_mask = settings.slot_mask
        self.register_buffer("pattern", level_attention(self.depth), persistent=False)
        self.register_buffer("slot_levels", torch.arange(1, self.depth + 1).repeat(2), persistent=False)
        if spec.backbone is not None:
            BackboneBody(spec.backbone, self.depth).check(spec.width, runs=spec.name_vectors is not None)
        if spec.name_vectors is not None:
            self.global_losses = self.pretrain_labels(settings.global_stage, spec)

    @property
    def body(self) -> BackboneBody | Decoder:
        """The transformer that is trained, or the decoder over a frozen one."""
        return BackboneBody(self.backbone, self.depth) if self.decoder is None else self.decoder

    # The global stage

    def pretrain_labels(self, stage: GlobalStage, spec: NetworkSpec) -> list[float]:
        """Train label embeddings on the hierarchy alone, with everything else frozen; dropout is on.

        Parameters
        ----------
        stage
            The settings.
        spec
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
        stop = StopSignal() if spec.stop is None else spec.stop
        self.train()
        try:
            for parameter in trained:
                parameter.requires_grad_(False)
            with threads_for(self):
                encode = partial(body.states, None)
                result, is_cut = pretrain_labels(head, encode, self.hierarchy, stage, stop, spec.progress)
        finally:
            for parameter in trained:
                parameter.requires_grad_(True)
            self.train(was_training)
        self.stages_before = (Stage("labels", len(result), max(stage.steps, len(result)), stopped=is_cut),)
        return result

    # The local stage

    def prepare(self, loss: Loss, labels: Any) -> LabelTargets:
        """Prepare labels, which the network sees in training: see `Network.prepare`."""
        return LabelTargets(loss.hierarchy.closure(labels))

    def for_scoring(self) -> Network:
        """Return the network itself, which scores level by level."""
        return self

    def losses(self, inputs: Sequence[Tensor], truth: Tensor, loss: Loss) -> Tensor:
        """Return the cross-entropy of all masks, given the true labels of the levels above: see `Network.losses`."""
        targets = self.targets(truth)
        slots = self.slots(targets)
        if self.training:
            hidden = torch.rand(slots.shape[:2], device=slots.device) < self.slot_mask
            slots = torch.where(hidden.unsqueeze(-1), self.outputs.mask, slots)
        scores = self.level_scores(inputs, slots).float()
        return functional.binary_cross_entropy_with_logits(scores, targets, reduction="none").sum((1, 2))

    def targets(self, nodes: Tensor) -> Tensor:
        """Return what each mask predicts: n × depth × (labels and "end"), of true labels closed under ancestors."""
        result = nodes.new_zeros(len(nodes), self.depth, nodes.shape[1] + 1)
        for number in range(self.depth):
            level = self.hierarchy.level(number + 1)
            result[:, number, level] = nodes[:, level]
        # Labels are closed under ancestors: a level without any is below the last one.
        result[..., -1] = 1 - result.amax(-1)
        return result

    def slots(self, targets: Tensor) -> Tensor:
        """Return what stands in the slots: the sum of the true embeddings of each level, without their gradient."""
        result: Tensor = targets @ self.outputs.embeddings.detach()
        return result

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
        masks, text = self.outputs.mask.expand(len(slots), self.depth, -1), self.body.read(inputs)
        hidden = self.body.states(text, torch.cat([slots, masks], 1), self.slot_levels, self.pattern)
        result: Tensor = self.outputs(hidden[:, self.depth :])
        return result

    # Inference

    def logits(self, inputs: Sequence[Tensor]) -> Tensor:
        """Return the logit of every label at its own level, given the labels predicted above: documents × nodes."""
        return self._write_levels(inputs)[0]

    def sequence(self, inputs: Sequence[Tensor]) -> list[list[LongArray]]:
        """Return what the paper predicts: the labels of each level of each document, up to its "end"."""
        selected = self._write_levels(inputs)[1].cpu().numpy()
        levels = [self.hierarchy.level(number + 1) for number in range(self.depth)]
        result = ([level.start + np.flatnonzero(row[level]) for level in levels] for row in selected)
        return [list(takewhile(len, labels)) for labels in result]

    def _write_levels(self, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Write labels level by level; return the logits of all labels and which are kept."""
        head, body = self.outputs, self.body
        text = body.read(inputs)
        slots, logits, selected = head.mask.new_zeros(len(inputs[0]), 0, len(head.mask)), [], []
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
            selected.append(chosen[:, :-1])
            slots = torch.cat([slots, (chosen.to(slots.dtype) @ head.embeddings[ids]).unsqueeze(1)], 1)
        return torch.cat(logits, 1), torch.cat(selected, 1)


def write_labels(network: Any, featurizer: TextFeaturizer, texts: Strings) -> list[list[LongArray]]:
    """Write the labels of each level of each text, batch by batch: see `HbglNetwork.sequence`."""
    inputs = featurizer.inputs(texts)
    result: list[list[LongArray]] = [[]] * len(texts)
    with torch.inference_mode():
        for rows in featurizer.batches(inputs):
            for row, levels in zip(rows.tolist(), network.sequence(inputs.batch(rows)), strict=True):
                result[row] = levels
    return result


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


@dataclass(eq=False, repr=False)
class Hbgl(NeuralModel):
    """HBGL (Jiang et al., EMNLP 2022): labels are written after the text, level by level.

    Embeddings of labels first learn to predict masked labels of the hierarchy. Then the labels of each level are
    predicted from the text and the labels above, true ones in training and predicted ones in scoring. `HbglNetwork`
    says what differs from the paper; memory is linear in the number of labels. With mode="head", a small decoder
    attends to token states of a frozen encoder. Trained with binary cross-entropy (loss="bce") alone.

    Settings that all systems have: see `NeuralModel` and `TrainingArguments`.

    Parameters
    ----------
    global_steps, global_learning_rate, global_mask, global_batch_size
        Steps of the first stage, their learning rate, the share of labels that are masked, and how often each sequence
        of labels is masked in a step (32 times in the official program, which a CPU does not afford).
    slot_mask
        The probability that the true labels of a level are hidden from the levels below in training, so that these do
        not rely on the labels above alone.
    decoder_size
        The width of the decoder with mode="head", at most that of the encoder; its cost grows with it.
    """

    name = "hbgl"
    network_type = HbglNetwork
    takes_states = True
    recipes = make_recipes(Recipe(30, 32, 3e-3), 3e-5, hidden=1e-3, outputs=1e-3)
    needs_names = True
    has_own_loss = True

    global_steps: Annotated[int, Between(0, 1_000_000)] = 300
    global_learning_rate: Annotated[float, Between(1e-12, 1e6)] = 1e-3
    global_mask: Share = 0.15
    global_batch_size: Width = 4
    slot_mask: Share = 0.5
    decoder_size: Width = 128

    @property
    def global_stage(self) -> GlobalStage:
        """The settings of the global stage."""
        return GlobalStage(self.global_steps, self.global_learning_rate, self.global_mask, self.global_batch_size)

    def sequences(self, texts: Iterable[str]) -> list[list[list[str]]]:
        """Return what the paper predicts: the labels that are written at each level of each text, up to its end."""
        if not hasattr(self, "fitted_"):
            raise not_fitted("this hbgl model has not learned anything yet; call fit first")
        names, fitted = self.hierarchy_.names, self.fitted_
        written = write_labels(fitted.network, fitted.featurizer, Strings.of(list(texts)))
        return [[[names[node] for node in level] for level in levels] for levels in written]
