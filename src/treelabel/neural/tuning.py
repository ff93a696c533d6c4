"""Tuning an encoder: the last layers of a transformer are trained on the texts of a model, by a contrastive loss.

The states below those layers never change, so that they are computed once per text and kept: a step costs a third of
what it would cost otherwise, and an embedding as well.
"""

import hashlib
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from treelabel.core.errors import TreelabelError
from treelabel.core.progress import progress_bar
from treelabel.core.stopping import StopSignal, held_interrupt
from treelabel.core.strings import Strings
from treelabel.core.types import FloatArray, LongArray
from treelabel.encoders.backbone import layers_of
from treelabel.encoders.token_states import StateEncoder, TokenStates
from treelabel.encoders.tokens import token_batches
from treelabel.encoders.transformer import TransformerEncoder
from treelabel.encoders.tuned_encoder import TunedEncoder, weights_digest
from treelabel.hierarchy.label_matrices import label_matrix
from treelabel.models.descriptions import Descriptions, is_code, label_text, node_descriptions
from treelabel.neural.contrastive import LABELS, TEXTS, TreeBatches, level_loss
from treelabel.neural.fitting import fixed_seed, hash_documents
from treelabel.neural.hardware import threads_for
from treelabel.neural.optimization import Pacing, linear
from treelabel.neural.upper_layers import MAX_TOKENS, UpperLayers
from treelabel.neural.weight_files import TrainState, read_checkpoint, resume, save_checkpoint
from treelabel.selection.evidence import Stage
from treelabel.selection.training import Training

# One layer of so many is trained, the last ones.
LAYER_SHARE = 3
LEARNING_RATE, WARMUP_RATIO, MAX_GRAD_NORM, WEIGHT_DECAY = 4e-4, 0.1, 1.0, 0.01
# Steps: as many as pass so many times over the texts, within these bounds.
PASSES, LEAST_STEPS, MOST_STEPS = 5, 6, 300
# Texts of a label that are trained on at most, and the memory of all their states in bytes.
MOST_TEXTS, MOST_MEMORY = 64, 1 << 28
# Vectors of states in float16 differ from those of the whole transformer by less.
TOLERANCE = 0.02
CHECKPOINT_SECONDS = 60.0


def can_be_tuned(encoder: Any) -> bool:
    """Return whether an encoder is a transformer; whether its layers can be told apart is seen when it is tuned."""
    return isinstance(encoder, TransformerEncoder) and not isinstance(encoder, TunedEncoder)


def with_label_texts(train: Training, descriptions: Descriptions) -> Training:
    """Put the names of labels, with their descriptions, after the documents that have them; codes are left out.

    Parameters
    ----------
    train
        The documents.
    descriptions
        Descriptions of labels.

    Returns
    -------
    Training
        The documents, and one more for each label at which some of them end.
    """
    h, described = train.hierarchy, node_descriptions(train.hierarchy, descriptions)
    terminals = np.unique(h.most_specific(train.labels).indices)
    named = [node for node in terminals.tolist() if node in described or not is_code(h.names[node])]
    texts = Strings.of([label_text(h.names[node], described.get(node)) for node in named])
    labels = label_matrix(np.arange(len(named) + 1), named, len(h))
    return train.followed_by(Training(texts, labels, h, regime=train.regime)) if named else train


@dataclass(eq=False)
class EncoderTuner:
    """Tunes an encoder on some of the texts of training data; the states of texts are shared by all tunings.

    The name of a label, with its description, is one more text of it: a leaf of one text has something to be near to.

    Parameters
    ----------
    train
        Texts with labels.
    encoder
        A transformer.
    seed
        Seed of batches and dropout: the same seed gives the same weights.
    checkpoints
        A folder to go on from after a run was killed.
    descriptions
        Descriptions of labels.
    """

    train: Training
    encoder: TransformerEncoder
    seed: int = 0
    checkpoints: Path | None = None
    descriptions: Descriptions = None
    stages: list[Stage] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        backbone = self.encoder.load_backbone()
        count = len(layers_of(backbone))
        self.layers = max(1, count // LAYER_SHARE)
        if count < 2:
            raise TreelabelError(f"the encoder {self.encoder.name} has {count} layers; tuning needs two at least")
        # Loaded once: every tuning trains a copy of the upper layers.
        self.upper = UpperLayers(self.encoder, self.layers, deepcopy(backbone)).eval()
        self.below = StateEncoder(self.encoder, count - self.layers, backbone)
        self.data = with_label_texts(self.train, self.descriptions)
        rows = self._sample()
        texts = list(self.data.texts.take(rows))
        self.states = self.below.transform(texts, self.train.progress)
        # Texts that occur more than once have the same states.
        self.row_of = {text: row for row, text in enumerate(texts)}
        self.sampled = rows
        self._require_tunable()

    def _sample(self) -> LongArray:
        """Choose the texts to train on: some of every label, as far as the memory goes, and the labels' own."""
        terminal = TreeBatches.of(self.train).terminal
        rng = np.random.default_rng(self.seed)
        order = rng.permutation(np.flatnonzero(terminal >= 0))
        order = order[np.argsort(terminal[order], kind="stable")]
        label = terminal[order]
        start = np.searchsorted(label, label)
        rank = np.arange(len(order)) - start
        # The first text of every label, then the second, and so on.
        kept = order[rank < MOST_TEXTS][np.argsort(rank[rank < MOST_TEXTS], kind="stable")]
        size = 2 * self.encoder.width * self.encoder.source.max_length
        lengths = [min(size, 2 * self.encoder.width * (2 + len(text) // 2)) for text in self.train.texts.take(kept)]
        of_labels = np.arange(len(self.train), len(self.data))
        return np.concatenate([np.sort(kept[np.cumsum(lengths) <= MOST_MEMORY]), of_labels])

    def _require_tunable(self) -> None:
        """Refuse a transformer whose last layers alone do not give what the whole gives."""
        rows = np.arange(min(4, len(self.states)))
        texts = [text for text, row in self.row_of.items() if row in rows]
        states = self.states.select(np.array([self.row_of[text] for text in texts]))
        expected = self.encoder.transform(texts)
        error = np.abs(self.upper.embed(states) - expected).max()
        if error > TOLERANCE * max(1.0, float(np.abs(expected).max())):
            raise TreelabelError(
                f"the encoder {self.encoder.name} cannot be tuned: its last layers cannot be told from those below; "
                "leave tune out, or give another one, such as BERT's family"
            )

    def planned_steps(self, rows: LongArray) -> int:
        """Return how many steps suit so many documents, and the texts of labels."""
        texts = len(np.intersect1d(rows, self.sampled)) + len(self.data) - len(self.train)
        return int(np.clip(np.ceil(PASSES * texts / (LABELS * TEXTS)), LEAST_STEPS, MOST_STEPS))

    def tune(self, rows: LongArray, stop: StopSignal, name: str) -> TunedEncoder:
        """Train on some documents.

        Parameters
        ----------
        rows
            The documents; those that were not sampled are left out.
        stop
            Ends training early; its rates then fall in time.
        name
            What the tuning is for: names its checkpoint and its stage.

        Returns
        -------
        TunedEncoder
            While `by_states` is set, vectors come from states.
        """
        used = self.sampled[np.isin(self.sampled, rows) | (self.sampled >= len(self.train))]
        batches = TreeBatches.of(self.data[used])
        states = self.states.select(np.searchsorted(self.sampled, used))
        planned = self.planned_steps(rows)
        with fixed_seed(self.seed):
            upper = deepcopy(self.upper)
            upper.to(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
            folder = None if self.checkpoints is None else self.checkpoints / name
            run = self._fingerprint(used, planned) if folder is not None else ""
            training = _Training(upper, batches, states, planned, self.seed, stop, folder, run)
            with threads_for(upper), progress_bar(f"tuning the encoder ({name})", planned, self.train.progress) as done:
                state = training.run(done)
        self.stages.append(Stage(f"tuning, {name}", state.step, planned, stopped=state.stopped))
        weights = upper.weights()
        tuned = TunedEncoder(self.encoder, weights_digest(weights), weights)
        tuned.by_states = _StateRows(self, upper.eval())
        return tuned

    def _fingerprint(self, rows: LongArray, steps: int) -> str:
        """Hash what a checkpoint depends on."""
        described = [self.encoder.fingerprint, str(self.seed), str(steps)]
        sha256 = hashlib.sha256("\0".join([*described, self.train.hierarchy.fingerprint]).encode())
        hash_documents(sha256, self.data[rows])
        return sha256.hexdigest()


@dataclass(eq=False)
class _StateRows:
    """Vectors of texts by their states, each computed once."""

    tuner: EncoderTuner
    upper: UpperLayers
    known: dict[str, FloatArray] = field(default_factory=dict)

    def __call__(self, texts: Sequence[str]) -> FloatArray:
        """Return one row per text."""
        missing = [text for text in dict.fromkeys(texts) if text not in self.known]
        sampled = [text for text in missing if text in self.tuner.row_of]
        states = self.tuner.states.select(np.array([self.tuner.row_of[text] for text in sampled], np.int64))
        self.known.update(zip(sampled, self.upper.embed(states), strict=True))
        others = [text for text in missing if text not in self.tuner.row_of]
        # Some at a time: states of all would not fit.
        for first in range(0, len(others), 512):
            part = others[first : first + 512]
            self.known.update(zip(part, self.upper.embed(self.tuner.below.transform(part, False)), strict=True))
        return np.stack([self.known[text] for text in texts]) if len(texts) else np.zeros((0, 0), np.float32)


@dataclass(eq=False)
class _Training:
    """The loop of steps, with checkpoints; see `EncoderTuner.tune`."""

    upper: UpperLayers
    batches: TreeBatches
    states: TokenStates
    planned: int
    seed: int
    stop: StopSignal
    folder: Path | None
    fingerprint: str

    def run(self, done: Any) -> TrainState:
        matrices = [p for p in self.upper.trained.values() if p.ndim > 1]
        others = [p for p in self.upper.trained.values() if p.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, fused=True)
        stored = None if self.folder is None else read_checkpoint(self.folder, self.fingerprint, self.upper)
        state = TrainState() if stored is None else resume(stored, self.upper, self.optimizer)
        saved = begun = time.monotonic()
        pacing = Pacing(begun, self.stop.deadline, state.step, self.planned, self.folder is not None)
        self.upper.train()
        with held_interrupt(self.stop):
            while state.step < self.planned and not state.stopped:
                rate = LEARNING_RATE * pacing.share(time.monotonic(), state.step, self._schedule)
                loss = self._step(state.step, rate)
                state.step += 1
                done(state.step, f"loss {loss:.3f}")
                state.stopped = bool(self.stop)
                on_time = pacing.given_up is None
                if on_time and (state.stopped or time.monotonic() - saved > CHECKPOINT_SECONDS):
                    self._save(state)
                    saved = time.monotonic()
            if not state.stopped and pacing.given_up is None:
                self._save(state)
        if not all(bool(torch.isfinite(p).all()) for p in self.upper.trained.values()):
            raise TreelabelError("tuning the encoder diverged: its weights are no finite numbers")
        return state

    def _schedule(self, step: float) -> float:
        # The first step counts, too.
        return linear(step + 1, self.planned + 1, WARMUP_RATIO)

    def _step(self, step: int, rate: float) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        rows = self.batches.draw(self.seed, step)
        levels = self.batches.levels(rows)
        if not levels:
            return 0.0
        vectors = functional.normalize(self._vectors(rows), dim=1)
        loss = level_loss(vectors, [(weight, positives.to(vectors.device)) for weight, positives in levels])
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(self.upper.trained.values()), MAX_GRAD_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    def _vectors(self, rows: LongArray) -> Tensor:
        """Return the vectors of a batch, computed in parts of similar length."""
        device = next(iter(self.upper.trained.values())).device
        parts = token_batches(self.states.lengths[rows].tolist(), MAX_TOKENS)
        vectors = []
        for part in parts:
            values, mask = self.states.batch(rows[part])
            vectors.append(self.upper(values.to(device), mask.to(device)))
        order = np.argsort(np.concatenate(parts), kind="stable")
        return torch.cat(vectors)[torch.from_numpy(order).to(device)]

    def _save(self, state: TrainState) -> None:
        if self.folder is not None:
            save_checkpoint(self.folder, self.fingerprint, state, self.upper, self.optimizer)
