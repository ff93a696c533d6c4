"""Several models as one: what they say of documents is pooled, with weights learned where they had not seen them."""

import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from treelabel.core.compute import LongArray
from treelabel.core.errors import TreelabelError
from treelabel.core.progress import progress_bar
from treelabel.core.strings import Strings
from treelabel.encoders.catalogue import Encoder
from treelabel.hierarchy import Hierarchy
from treelabel.models.base import Model, Training
from treelabel.models.schema import Arrays, Schema, with_prefix
from treelabel.models.stack.pool import Pool, pool_of
from treelabel.rules import decide
from treelabel.scores import Scores

# From so many documents on, one part of them is left out instead of each in turn: weights are few.
MANY_DOCUMENTS = 20_000
LEFT_OUT_OF_MANY = 4_000
# So many probabilities of models are kept at most to learn weights from, and these documents at least.
MOST_KEPT = 1 << 25
FEWEST_KEPT = 500
# So many probabilities are pooled at once.
AT_ONCE = 1 << 22
# From so many nodes on models keep the likeliest only.
MANY_NODES = 20_000

Spec = str | Mapping[str, Any] | Model

# On training data of four sets, out of fold, no other choice of linear models, bag and prototype is clearly better.
USUAL: tuple[Spec, ...] = (
    {"model": "linear", "encoder": None},
    {"model": "linear", "tfidf": False},
    "prototype",
)


class Values(TypedDict):
    """What each model has learned."""

    parts: list[dict[str, Any]]


class Stack(Model):
    """A log-linear pool of models, whose weights are learned on documents that the models did not learn from.

    `models` are names of MODELS, models that have not learned, or mappings such as {"model": "linear", "words": 2}. The
    `encoder` is handed to all of them that take one and do not say otherwise ({"model": "linear", "encoder": None}).
    Unless they are given, they are linear with tf-idf, linear with embeddings, and prototype.

    Each of `folds` parts of the documents is left out in turn, every model learns the others and scores it; then all
    learn everything. With one path a document, ln P(end) is the weighted sum of the models' (PathPool); with several,
    logits of nodes are added up (NodePool). Learning costs `folds` + 1 times what the models cost; from 20,000
    documents on, a single part of 4,000 is left out. Where documents x nodes are very many, weights are learned from a
    sample of them. A validation set takes the place of the parts. After a deadline, or at Ctrl-C, weights are learned
    from the parts that are done; if there is none, all models count alike.
    """

    name = "stack"
    learned = Values

    def __init__(
        self,
        hierarchy: Hierarchy | None = None,
        models: tuple[Spec, ...] = USUAL,
        encoder: str | Encoder | None = None,
        folds: int = 5,
        seed: int = 0,
    ) -> None:
        self.hierarchy = hierarchy
        self.models = models
        self.encoder = encoder
        self.folds = folds
        self.seed = seed

    @property
    def exhaustive(self) -> bool:
        """Whether the scores of children sum to their parent's: always, whatever those of the parts do."""
        return True

    # Learning

    def _fit(self, train: Training) -> None:
        if self.encoder is None and self.models == USUAL:
            raise TreelabelError(
                "two of the usual models of stack work on embeddings: give an encoder= (treelabel encoders lists what "
                "is usable here), or say which models= to pool"
            )
        if not len(self.models):
            raise TreelabelError("the model stack needs models=, such as ('linear', 'prototype')")
        if self.folds < 2:
            raise TreelabelError(f"the setting folds of the model stack must be at least 2, found {self.folds}")
        self.parts_ = self._learned(train)
        self.pool_: Pool = pool_of(train.regime).equal(train, len(self.parts_))
        given, rows = self._left_out(train)
        if len(rows):
            held = train if train.valid is None else train.valid
            self.pool_ = self.pool_.fit(given, held[rows])

    def _learned(self, train: Training) -> list[Model]:
        """Make the models, and let them learn."""
        parts = self._made()
        for part in parts:
            part.hierarchy_, part.regime_ = train.hierarchy, train.regime
            part._fit(train)
        return parts

    def _made(self) -> list[Model]:
        """Make models that have not learned yet."""
        return [made(spec, self.encoder, self.seed) for spec in self.models]

    def _left_out(self, train: Training) -> tuple[list[Any], LongArray]:
        """What models say of documents that they have not seen, one matrix a model; and which documents these are."""
        most = max(FEWEST_KEPT, MOST_KEPT // (len(self.parts_) * min(len(train.hierarchy), MANY_NODES)))
        if train.valid is not None:
            rows = np.random.default_rng(self.seed).permutation(len(train.valid))[:most]
            return [part._score(train.valid.texts.take(rows)).values for part in self.parts_], rows
        found: list[list[Any]] = []
        done: list[LongArray] = []
        parts = left_out_parts(train, self.folds, self.seed)
        with progress_bar("learning weights", len(parts), train.progress) as told:
            try:
                for left_out in parts:
                    others = train[np.setdiff1d(np.arange(len(train)), left_out)]
                    if train.stop or not others.labels.nnz:
                        break
                    kept = left_out[: max(1, most // len(parts))]
                    found.append([part._score(train.texts.take(kept)).values for part in self._learned(others)])
                    done.append(kept)
                    told(len(done))
            except KeyboardInterrupt:
                train.stop.interrupt()
        if not done:
            return [], np.zeros(0, np.int64)
        return [
            Scores.one_after_another(train.hierarchy, values).values for values in zip(*found, strict=True)
        ], np.concatenate(done)

    # Scoring

    def _score(self, texts: Strings) -> Scores:
        given = [part._score(texts).values for part in self.parts_]
        step = max(1, AT_ONCE // len(self.hierarchy_))
        starts = range(0, max(1, len(texts)), step)
        pooled = [self.pool_.probabilities([values[low : low + step] for values in given]) for low in starts]
        return Scores.one_after_another(self.hierarchy_, pooled)

    def explain(self, text: str, node: int | None = None) -> Any:
        """What the first model that can explain its predictions says of the best leaf of all; p is that of all."""
        scores = self._score(Strings.of([text]))
        best = decide(scores, "best_leaf").most_specific.indices if node is None else np.array([node])
        path, dense = np.append(self.hierarchy_.ancestors(best[:1]).indices, best[:1]), scores.dense()[0]
        for part in self.parts_ if len(best) else ():
            with suppress(TreelabelError):
                steps = part.explain(text, int(best[0]))
                # By node: two labels may have one name.
                return [replace(step, p=float(dense[at])) for step, at in zip(steps, path, strict=True)]
        return super().explain(text)

    # Saving

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = [], {f"pool.{name}": array for name, array in self.pool_.arrays().items()}
        for place, part in enumerate(self.parts_):
            own, kept = part._state()
            values.append(own)
            arrays |= {f"{place}.{name}": array for name, array in kept.items()}
        return {"parts": values}, arrays

    def _schema(self, values: dict[str, Any]) -> Schema:
        made_parts = self._made()
        if not made_parts or len(values["parts"]) != len(made_parts):
            raise TreelabelError(f"{len(values['parts'])} models have learned, but the settings name {len(made_parts)}")
        schemas = {"pool.": pool_of(self.regime_).schema(self.hierarchy_, len(made_parts))}
        for place, (part, own) in enumerate(zip(made_parts, values["parts"], strict=True)):
            part.hierarchy_, part.regime_ = self.hierarchy_, self.regime_
            kept = {name: value for name, value in part.get_params(deep=False).items() if name not in part.unsaved}
            part.check_settings(kept, f"model {place}: the setting ")
            schemas[f"{place}."] = part.schema(own)
        return Schema(parts=schemas)

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.parts_ = self._made()
        for place, (part, own) in enumerate(zip(self.parts_, values["parts"], strict=True)):
            part.hierarchy_, part.regime_ = self.hierarchy_, self.regime_
            part._restore(own, with_prefix(arrays, f"{place}."))
        self.pool_ = pool_of(self.regime_).of(self.hierarchy_, with_prefix(arrays, "pool."))

    def _write_files(self, folder: Path) -> None:
        for place, part in enumerate(self.parts_):
            with tempfile.TemporaryDirectory() as own:
                part._write_files(Path(own))
                for file in sorted(Path(own).iterdir()):
                    shutil.copyfile(file, folder / f"{place}.{file.name}")

    def _read_files(self, folder: Path) -> None:
        for place, part in enumerate(self.parts_):
            with tempfile.TemporaryDirectory() as own:
                for file in sorted(folder.glob(f"{place}.*")):
                    shutil.copyfile(file, Path(own) / file.name.removeprefix(f"{place}."))
                part._read_files(Path(own))


def made(spec: Spec, encoder: str | Encoder | None, seed: int) -> Model:
    """Make a model of its description; what it does not say of the encoder and the seed is as given.

    >>> made({"model": "linear", "words": 2}, None, 5).get_params()["words"]
    2
    """
    from treelabel.models.registry import MODELS, check_setting_names, make_model

    if isinstance(spec, Model):
        return without_checkpoints(type(spec)(**spec.get_params(deep=False)))
    said = dict(spec) if isinstance(spec, Mapping) else {"model": spec}
    if not isinstance(said.get("model"), str):
        raise TreelabelError(f"expected the name of a model, or a mapping that has it as 'model', found {spec!r}")
    name = said.pop("model")
    known = MODELS.find(name).maker.setting_names()
    usual = {key: value for key, value in (("encoder", encoder), ("seed", seed)) if key in known}
    # JSON has no tuples.
    own = {key: tuple(value) if isinstance(value, list) else value for key, value in said.items()}
    check_setting_names(name, own)
    return without_checkpoints(make_model(name, **{**usual, **own}))


def without_checkpoints(model: Model) -> Model:
    """A model that learns several times has no one place to go on from."""
    return model.set_params(checkpoints=None) if "checkpoints" in model.setting_names() else model


def left_out_parts(train: Training, folds: int, seed: int) -> list[LongArray]:
    """Divide documents into parts that are left out in turn; each label's documents go to all parts alike.

    One document alone cannot be left out; of very many, one part is enough.
    """
    documents = len(train)
    order = np.random.default_rng(seed).permutation(documents)
    if documents >= MANY_DOCUMENTS:
        return [order[:LEFT_OUT_OF_MANY]]
    ends = train.hierarchy.most_specific(train.labels)
    first = np.full(documents, -1)
    some = np.diff(ends.indptr) > 0
    first[some] = ends.indices[ends.indptr[:-1][some]]
    dealt = order[np.argsort(first[order], kind="stable")]
    parts = [dealt[start::folds] for start in range(folds)] if documents > 1 else []
    rng = np.random.default_rng(seed)
    return [rng.permutation(part) for part in parts if len(part)]
