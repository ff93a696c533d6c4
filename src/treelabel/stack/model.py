"""Several models as one: their scores are pooled, with weights learned on documents that they have not seen."""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

import numpy as np

from treelabel.calibration.pools import CandidatePool, Pool, pool_calibration
from treelabel.core.array_schema import Arrays, Schema, with_prefix
from treelabel.core.bounded_memory import BLOCK_SCORES, MANY_NODES, TOP_SCORES
from treelabel.core.errors import TreelabelError, require_extra
from treelabel.core.progress import progress_bar
from treelabel.core.strings import Strings
from treelabel.core.types import LongArray
from treelabel.encoders.protocol import Encoder
from treelabel.encoders.registry import default_encoder, find_encoder
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.models.base import Model, Training
from treelabel.models.descriptions import Descriptions, check_descriptions
from treelabel.models.persistence.schema import TunedNote
from treelabel.models.persistence.store import files_from, files_to
from treelabel.models.settings import Folds, Seconds, Seed, Settings
from treelabel.rules.decisions import decide
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import HeldOut, Stage, TuningTrial
from treelabel.stack.estimator_specs import Spec, make_estimator
from treelabel.stack.exported_stack import export_tuned
from treelabel.stack.stratified_folds import make_folds
from treelabel.stack.tuned_estimators import (
    TUNED_PRIOR,
    TUNED_SPECS,
    TUNING_PARTS,
    TuningRun,
    can_tune,
    judge_tuning,
)
from treelabel.text.tfidf import Tfidf

if TYPE_CHECKING:
    from treelabel.encoders.tuned_encoder import TunedEncoder

# How many probabilities of models are kept at most to learn weights from, and of how many documents at least.
MOST_KEPT = 1 << 25
FEWEST_KEPT = 500

# On training data of four sets, out of fold, no other choice of linear models, bag and prototype is clearly better.
DEFAULT_ESTIMATORS: tuple[Spec, ...] = (
    {"model": "linear", "encoder": None},
    {"model": "linear", "tfidf": False},
    "prototype",
)
# Where labels are very many and documents have several: most labels have few documents, but names. Memory and prototype
# know the embeddings; rankers would take several times as long with them.
EXTREME_ESTIMATORS: tuple[Spec, ...] = (
    {"model": "extreme", "encoder": None},
    "memory",
    "lexical",
    "prototype",
)


class StackValues(TypedDict):
    """The values that each estimator has learned; the last ones are over the tuned encoder, if there is one."""

    estimators: list[dict[str, Any]]
    tuned: NotRequired[TunedNote]


@dataclass(eq=False, repr=False)
class Stack(Model):
    """A log-linear pool of models, whose weights are learned on documents that the models have not seen.

    Each of `cv` folds is left out in turn, every estimator learns the others and scores it; then all learn everything.
    With one path per document, ln P(terminal node) is the weighted sum of the estimators' (PathPool); with several,
    logits of nodes are added up (NodePool). With several of more than 2,000 labels, only the 100 largest scores of each
    estimator are looked at, and what an estimator does not say counts for itself (CandidatePool). Learning costs
    `cv` + 1 times what the estimators cost; from 20,000 documents on, a single fold of 4,000 is left out. Where
    documents x nodes are very many, weights are learned from a sample of them. A validation set takes the place of the
    folds. After a deadline, or at Ctrl-C, weights are learned from the folds that are done; if there is none, all
    estimators have the same weight.

    Parameters
    ----------
    hierarchy : Hierarchy or None
        The hierarchy, where training data have none of their own.
    estimators : tuple or None
        Names of MODELS, models that have not learned, or mappings such as {"model": "linear", "C": 1.0}; by default
        linear with tf-idf, linear with embeddings, and prototype; with several of more than 2,000 labels extreme,
        memory, lexical and prototype.
    encoder : str, Encoder or None
        Handed to all estimators that take one and do not have their own ({"model": "linear", "encoder": None}).
    descriptions : mapping, str or None
        Descriptions of labels, handed to all estimators that take them and do not have their own.
    cv : int
        The number of folds.
    tune : bool or "auto"
        Whether the last layers of the encoder are trained on three quarters of the texts, and linear and prototype
        over it are pooled with the other estimators, unless that does not pay on the fourth quarter. "auto" does so
        for a transformer, and for up to 20,000 texts of a million tokens.
    tune_seconds : float or None
        The time that tuning may take; None for as long as it takes. `max_seconds` of `fit` takes its place.
    checkpoint_dir : str or None
        A folder from which tuning goes on after it was killed, to the same weights.
    seed : int
        Seed of the random numbers.
    optimize : str or None
        The metric that predictions will be judged by, a row of METRICS: the default rule is chosen for it. None stands
        for leaf accuracy of documents with one leaf each, and for hF1 of others.
    """

    name = "stack"
    needs_encoder = True
    learned = StackValues
    unsaved = ("hierarchy", "checkpoint_dir")

    hierarchy: Hierarchy | None = None
    estimators: tuple[Spec, ...] | None = None
    encoder: str | Encoder | None = None
    descriptions: Descriptions = None
    cv: Folds = 5
    tune: bool | Literal["auto"] = False
    tune_seconds: Seconds | None = None
    checkpoint_dir: str | None = None
    seed: Seed = 0
    optimize: str | None = None

    @property
    def exhaustive(self) -> bool:
        """Whether the scores of children sum to their parent's: always, whatever those of the estimators do."""
        return True

    def _known_words(self) -> Tfidf | None:
        """Return that of the first estimator that has one."""
        return next((result for each in self.estimators_ if (result := each._known_words()) is not None), None)

    # Settings of estimators

    def _nested_settings(self) -> dict[str, Settings]:
        """Return the estimators by the name of their model; those after the first of a name have a number behind it."""
        result = self._by_name(self._specs())
        # Which of the usual ones are taken is seen when it learns.
        return result if self.estimators is not None else {**self._by_name(EXTREME_ESTIMATORS), **result}

    def _by_name(self, specs: tuple[Spec, ...]) -> dict[str, Settings]:
        result: dict[str, Settings] = {}
        for estimator in self._make_estimators(specs):
            count = sum(name.partition("-")[0] == estimator.name for name in result)
            result[f"{estimator.name}-{count + 1}" if count else estimator.name] = estimator
        return result

    def _set_nested(self, name: str, estimator: Settings) -> None:
        assert isinstance(estimator, Model)
        specs = self._specs()
        if name not in self._by_name(specs):
            specs = EXTREME_ESTIMATORS
        index = list(self._by_name(specs)).index(name)
        self.estimators = (*specs[:index], estimator, *specs[index + 1 :])

    def _specs(self) -> tuple[Spec, ...]:
        """Return the estimators in the settings, or the usual ones: for very many labels, once these are known."""
        if self.estimators is not None:
            return tuple(self.estimators)
        return EXTREME_ESTIMATORS if self._is_extreme else DEFAULT_ESTIMATORS

    # Learning

    def _check_settings(self) -> None:
        check_descriptions(self.descriptions)
        if self.estimators is not None and not len(self.estimators):
            raise TreelabelError("the model stack needs estimators=, such as ('linear', 'prototype'), found ()")
        for estimator in self._make_estimators():
            estimator.require_settings()

    def _fit(self, train: Training) -> HeldOut | None:
        self.tuned_: TunedEncoder | None = None
        self.tuned_pool_: Pool | None = None
        self.tuning_: TuningTrial | None = None
        self.stages_: tuple[Stage, ...] = ()
        self.tuning_seconds_ = 0.0
        encoder = self._shared_encoder()
        tunes = not self._is_extreme and can_tune(encoder, train, self.tune)
        self.estimators_ = self._fit_estimators(train, encoder)
        evidence, rows = self._left_out(train, encoder)
        self.pool_: Pool = self._pool.equal(train.hierarchy, len(self.estimators_), train.labels)
        if not len(rows):
            return None
        held = (train if train.valid is None else train.valid)[rows]
        self.pool_ = self.pool_.fit(evidence, held.labels)
        p, tuned = self.pool_.probabilities(evidence), None
        if tunes and not train.stop:
            try:
                tuned = self._tune(train, default_encoder() if encoder is None else encoder, p, rows)
            except KeyboardInterrupt:
                train.stop.interrupt()
        return HeldOut.of(p, held) if tuned is None else tuned

    def _tune(self, train: Training, encoder: Encoder, p: Any, rows: LongArray) -> HeldOut | None:
        """Tune the encoder, and add estimators over it; return None where they do not pay on held-out documents.

        Parameters
        ----------
        p
            What the pool says of `rows`, out of fold.
        rows
            Documents, of those to learn from or of the validation set.
        """
        run = TuningRun.start(train, encoder, self.seed, self.tune_seconds, self.checkpoint_dir, self.descriptions)
        some, rest = np.arange(len(rows)), np.arange(len(train))
        if train.valid is None:
            left_out = make_folds(train, TUNING_PARTS, self.seed)[0]
            some, rest = np.flatnonzero(np.isin(rows, left_out)), np.setdiff1d(rest, left_out)
        held = (train if train.valid is None else train.valid)[rows[some]]
        evidence = [p[some], *run.held_scores(rest, held, self._make_tuned)]
        pool = self._pool.equal(train.hierarchy, len(evidence), train.labels)
        self.stages_, self.tuning_seconds_ = tuple(run.tuner.stages), run.seconds
        if train.stop:
            return None
        self.tuning_ = judge_tuning(pool, evidence, held, self.seed)
        if not self.tuning_.kept:
            return None
        pool = pool.fit(evidence, held.labels, TUNED_PRIOR)
        estimators, tuned = run.finish(len(rest))
        self.estimators_, self.tuned_, self.tuned_pool_ = self.estimators_ + estimators, tuned, pool
        return HeldOut.of(pool.probabilities(evidence), held)

    def _make_tuned(self, spec: Spec, tuned: Encoder) -> Model:
        return make_estimator(spec, tuned, self.seed, self.descriptions)

    def _tuning(self) -> TuningTrial | None:
        return self.tuning_

    def _stages(self) -> tuple[Stage, ...]:
        return self.stages_

    def _shared_encoder(self) -> Encoder | None:
        """Make the encoder of all estimators that have none of their own, so that it is loaded once."""
        if self.encoder is not None:
            return find_encoder(self.encoder)
        # A memory without an encoder does without embeddings; among the usual estimators it is to have them.
        return default_encoder() if self.estimators is None else None

    def _fit_estimators(self, train: Training, encoder: Encoder | None) -> list[Model]:
        """Make the estimators, and fit them."""
        estimators = self._make_estimators(encoder=encoder)
        for estimator in estimators:
            estimator.hierarchy_, estimator.regime_ = train.hierarchy, train.regime
            estimator._fit(train)
        return estimators

    def _make_estimators(self, specs: tuple[Spec, ...] | None = None, encoder: Encoder | None = None) -> list[Model]:
        """Make estimators, by default those for the labels that are known and with the encoder of the settings."""
        each = self.encoder if encoder is None else encoder
        chosen = self._specs() if specs is None else specs
        return [make_estimator(spec, each, self.seed, self.descriptions) for spec in chosen]

    @property
    def _is_extreme(self) -> bool:
        return hasattr(self, "hierarchy_") and self._pool is CandidatePool

    @property
    def _pool(self) -> type[Pool]:
        return pool_calibration(self.regime_ == "multi_path", len(self.hierarchy_))

    def _scores_of(self, estimator: Model, texts: Strings) -> Any:
        """Return what an estimator says of texts, of very many labels the largest scores alone."""
        return (estimator._score_top(texts, TOP_SCORES) if self._is_extreme else estimator._score(texts)).values

    def _left_out(self, train: Training, encoder: Encoder | None) -> tuple[list[Any], LongArray]:
        """Score documents that estimators have not seen: one matrix per estimator, and which documents these are."""
        width = TOP_SCORES if self._is_extreme else min(len(train.hierarchy), MANY_NODES)
        most = max(FEWEST_KEPT, MOST_KEPT // (len(self.estimators_) * width))
        if train.valid is not None:
            rows = np.random.default_rng(self.seed).permutation(len(train.valid))[:most]
            return [self._scores_of(each, train.valid.texts.take(rows)) for each in self.estimators_], rows
        result: list[list[Any]] = []
        done: list[LongArray] = []
        folds = make_folds(train, self.cv, self.seed)
        with progress_bar("learning weights", len(folds), train.progress) as report:
            try:
                for left_out in folds:
                    others = train[np.setdiff1d(np.arange(len(train)), left_out)]
                    if train.stop or not others.labels.nnz:
                        break
                    some = left_out[: max(1, most // len(folds))]
                    texts = train.texts.take(some)
                    fitted = self._fit_estimators(others, encoder)
                    result.append([self._scores_of(each, texts) for each in fitted])
                    done.append(some)
                    report(len(done))
            except KeyboardInterrupt:
                train.stop.interrupt()
        if not done:
            return [], np.zeros(0, np.int64)
        evidence = [Scores.concat(train.hierarchy, values).values for values in zip(*result, strict=True)]
        return evidence, np.concatenate(done)

    # Scoring

    def _score(self, texts: Strings) -> Scores:
        evidence = [self._scores_of(each, texts) for each in self.estimators_]
        step = max(1, BLOCK_SCORES // (TOP_SCORES if self._is_extreme else len(self.hierarchy_)))
        starts = range(0, max(1, len(texts)), step)
        pooled = [self._pool_evidence([values[low : low + step] for values in evidence]) for low in starts]
        return Scores.concat(self.hierarchy_, pooled)

    def _pool_evidence(self, evidence: list[Any]) -> Any:
        """Pool what the estimators say; those over a tuned encoder are the last ones, and have a pool of their own."""
        if self.tuned_pool_ is None:
            return self.pool_.probabilities(evidence)
        first = len(evidence) - len(TUNED_SPECS)
        return self.tuned_pool_.probabilities([self.pool_.probabilities(evidence[:first]), *evidence[first:]])

    def _score_top(self, texts: Strings, top: int) -> Scores:
        # Of very many labels, few have a score anyway.
        return self._score(texts).top_k(top) if self._is_extreme else super()._score_top(texts, top)

    def explain(self, text: str, node: int | None = None) -> Any:
        """Return the explanation of the first estimator that has one, of the best leaf of all; p is that of all."""
        scores = self._score(Strings.of([text]))
        best = decide(scores, "best_leaf").most_specific.indices if node is None else np.array([node])
        path, dense = np.append(self.hierarchy_.ancestors(best[:1]).indices, best[:1]), scores.dense()[0]
        for estimator in self.estimators_ if len(best) else ():
            with suppress(TreelabelError):
                steps = estimator.explain(text, int(best[0]))
                # By node: two labels may have one name.
                return [replace(step, p=float(dense[index])) for step, index in zip(steps, path, strict=True)]
        return super().explain(text)

    def export(self, runtime: Literal["onnx", "int8"] = "onnx") -> "Stack":
        """Return the model with its tuned encoder as an ONNX graph, which is saved with it.

        Parameters
        ----------
        runtime : {"onnx", "int8"}
            "onnx" returns the same scores to 1e-4; "int8" has weights of eight bits in both encoders, the tuned one and
            the one that it was made of, is about twice as fast, and is less accurate.

        Returns
        -------
        Stack
            A fitted model.
        """
        if runtime not in ("onnx", "int8"):
            raise TreelabelError(f"expected the runtime onnx or int8, found {runtime!r}")
        if getattr(self, "tuned_", None) is None:
            raise TreelabelError(
                "this stack has no tuned encoder to export, and other encoders run as graphs already; for int8, fit it "
                "with an encoder such as 'minilm(runtime=int8)'"
            )
        exported: Stack = export_tuned(self, runtime)
        return exported

    # Saving

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = [], {f"pool.{name}": array for name, array in self.pool_.arrays().items()}
        if self.tuned_pool_ is not None:
            arrays |= {f"tuned_pool.{name}": array for name, array in self.tuned_pool_.arrays().items()}
        for index, estimator in enumerate(self.estimators_):
            learned, inner = estimator._state()
            values.append(learned)
            arrays |= {f"{index}.{name}": array for name, array in inner.items()}
        learned = {"estimators": values}
        if self.tuned_ is not None:
            learned["tuned"] = self.tuned_.note()
        return learned, arrays

    def _schema(self, values: dict[str, Any]) -> Schema:
        unfitted, stored = self._unfitted(self._stored_encoder(values)), values["estimators"]
        if not unfitted or len(stored) != len(unfitted):
            raise TreelabelError(f"{len(stored)} estimators have learned, but the settings name {len(unfitted)}")
        schemas = {start: self._pool_schema(count) for start, count in self._pool_sizes("tuned" in values).items()}
        for index, (each, learned) in enumerate(zip(unfitted, stored, strict=True)):
            each.hierarchy_, each.regime_ = self.hierarchy_, self.regime_
            saved = {name: value for name, value in each.flat_settings().items() if name not in each.unsaved}
            each.check_settings(saved, f"estimator {index}: the setting ")
            schemas[f"{index}."] = each.schema(learned)
        tuned = self._stored_encoder(values)
        return Schema(parts=schemas, files=() if tuned is None else tuned.files)

    def _pool_sizes(self, is_tuned: bool) -> dict[str, int]:
        """Return how many members each pool has, by the names of its arrays."""
        sizes = {"pool.": len(self._specs())}
        return {**sizes, "tuned_pool.": 1 + len(TUNED_SPECS)} if is_tuned else sizes

    def _pool_schema(self, members: int) -> Schema:
        nodes, pool = len(self.hierarchy_), self._pool.equal(self.hierarchy_, members)
        sizes = {"nodes": nodes, "models": members}
        return Schema(pool.parameters, sizes=sizes, most={"terminals": nodes}, relations=(pool.check,))

    def _stored_encoder(self, values: dict[str, Any]) -> "TunedEncoder | None":
        """Make the tuned encoder of a folder, if there is one; its weights are read with the files."""
        if "tuned" not in values:
            return None
        with require_extra("neural", "a tuned encoder"):
            from treelabel.encoders.tuned_encoder import TunedEncoder
        return TunedEncoder.restore(self.encoder, values["tuned"])

    def _unfitted(self, tuned: "TunedEncoder | None") -> list[Model]:
        """Make all estimators, those over a tuned encoder last."""
        over = [] if tuned is None else [self._make_tuned(spec, tuned) for spec in TUNED_SPECS]
        return self._make_estimators() + over

    def _restore(self, values: dict[str, Any], arrays: Arrays) -> None:
        self.tuned_ = self._stored_encoder(values)
        self.tuning_, self.stages_ = None, ()
        self.estimators_ = self._unfitted(self.tuned_)
        for index, (each, learned) in enumerate(zip(self.estimators_, values["estimators"], strict=True)):
            each.hierarchy_, each.regime_ = self.hierarchy_, self.regime_
            each._restore(learned, with_prefix(arrays, f"{index}."))
        pools = {
            start: self._pool.equal(self.hierarchy_, count).restore(with_prefix(arrays, start))
            for start, count in self._pool_sizes(self.tuned_ is not None).items()
        }
        self.pool_, self.tuned_pool_ = pools["pool."], pools.get("tuned_pool.")

    def _write_files(self, folder: Path) -> None:
        if self.tuned_ is not None:
            self.tuned_.write(folder)
        for index, estimator in enumerate(self.estimators_):
            with files_to(folder, f"{index}.") as inner:
                estimator._write_files(inner)

    def _read_files(self, folder: Path) -> None:
        if self.tuned_ is not None:
            self.tuned_.read(folder)
        for index, estimator in enumerate(self.estimators_):
            with files_from(folder, f"{index}.") as inner:
                estimator._read_files(inner)
