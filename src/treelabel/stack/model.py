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
from treelabel.encoders.registry import default_encoder_name
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.models.base import Model, Training
from treelabel.models.descriptions import Descriptions, check_descriptions
from treelabel.models.persistence.schema import TunedNote
from treelabel.models.persistence.store import files_from, files_to
from treelabel.models.settings import Folds, Seconds, Seed, Settings
from treelabel.rules.decisions import decide
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import HeldOut, Stage, TuningTrial
from treelabel.selection.training import draw_folds, hold_out
from treelabel.stack.estimator_specs import Spec, make_estimator
from treelabel.stack.tuned_estimators import TUNED_SPECS, WEIGHTS, TuningRun, can_tune
from treelabel.text.tfidf import Tfidf

if TYPE_CHECKING:
    from treelabel.encoders.tuned_encoder import TunedEncoder

# From this many documents on, one fold is left out instead of each in turn: weights are few.
MANY_DOCUMENTS = 20_000
LEFT_OUT_OF_MANY = 4_000
# How many probabilities of models are kept at most to learn weights from, and of how many documents at least.
MOST_KEPT = 1 << 25
FEWEST_KEPT = 500
# An encoder is tuned without one of so many folds, for so many of them.
TUNING_CV, TUNING_FOLDS = 4, 1

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
        The number of folds; an encoder is tuned without a quarter of the documents instead.
    tune : bool or "auto"
        Whether the last layers of the encoder are trained on the texts, and linear and prototype over it join the
        estimators where that pays on held-out documents. "auto" does so for a transformer, and for up to 20,000
        texts of a million tokens.
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
        self.tuning_: TuningTrial | None = None
        self.stages_: tuple[Stage, ...] = ()
        self.tuning_seconds_ = 0.0
        self.estimators_ = self._fit_estimators(train)
        run = None
        if not self._is_extreme and not train.stop and can_tune(self.encoder, train, self.tune):
            parts = (TUNING_FOLDS if train.valid is None else 0) + 1
            settings = self.seed, self.tune_seconds, parts, self.checkpoint_dir, self.descriptions
            run = TuningRun.start(train, self.encoder, *settings)
        evidence, rows = self._left_out(train, run)
        if run is not None and not self._add_tuned(run, evidence, rows, train):
            # As if nothing had been tuned: with all folds.
            evidence, rows = self._left_out(train)
        self.pool_: Pool = self._pool.equal(train.hierarchy, len(self.estimators_), train.labels)
        if not len(rows):
            return None
        held = (train if train.valid is None else train.valid)[rows]
        self.pool_ = self.pool_.fit(evidence, held.labels)
        return HeldOut.of(self.pool_.probabilities(evidence), held)

    def _add_tuned(self, run: TuningRun, evidence: list[Any], rows: LongArray, train: Training) -> bool:
        """Add estimators over the tuned encoder if they are worth it on held-out documents; return whether they are."""
        if len(rows) and not train.stop:
            held = (train if train.valid is None else train.valid)[rows]
            pool = self._pool.equal(train.hierarchy, len(evidence), train.labels)
            self.tuning_ = run.judge(pool, evidence, held, len(self.estimators_))
        if self.tuning_ is not None and self.tuning_.kept:
            is_final = train.valid is not None
            self.estimators_ += run.calibrated if is_final else run.finish(train, len(train) - len(rows))
            self.tuned_ = run.take_last()
        self.stages_, self.tuning_seconds_ = tuple(run.tuner.stages), run.seconds
        return self.tuned_ is not None

    def _make_tuned(self, spec: Spec, tuned: Encoder) -> Model:
        return make_estimator(spec, tuned, self.seed, self.descriptions)

    def _tuning(self) -> TuningTrial | None:
        return self.tuning_

    def _stages(self) -> tuple[Stage, ...]:
        return self.stages_

    def _fit_estimators(self, train: Training) -> list[Model]:
        """Make the estimators, and fit them."""
        # A memory without an encoder does without embeddings; here it is to have them.
        usual = self._is_extreme and self.estimators is None and self.encoder is None
        estimators = self._make_estimators(encoder=default_encoder_name() if usual else None)
        for estimator in estimators:
            estimator.hierarchy_, estimator.regime_ = train.hierarchy, train.regime
            estimator._fit(train)
        return estimators

    def _make_estimators(self, specs: tuple[Spec, ...] | None = None, encoder: str | None = None) -> list[Model]:
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

    def _left_out(self, train: Training, run: TuningRun | None = None) -> tuple[list[Any], LongArray]:
        """Score documents that estimators have not seen: one matrix per estimator, and which documents these are."""
        width = TOP_SCORES if self._is_extreme else min(len(train.hierarchy), MANY_NODES)
        most = max(FEWEST_KEPT, MOST_KEPT // (len(self.estimators_) * width))
        if train.valid is not None:
            rows = np.random.default_rng(self.seed).permutation(len(train.valid))[:most]
            scores = [self._scores_of(each, train.valid.texts.take(rows)) for each in self.estimators_]
            if run is not None:
                tuned = run.tune(np.arange(len(train)), "all")
                scores += run.held_scores(tuned, train, train.valid[rows], self._make_tuned)
            return scores, rows
        result: list[list[Any]] = []
        done: list[LongArray] = []
        folds = make_folds(train, self.cv if run is None else TUNING_CV, self.seed)
        folds = folds if run is None else folds[:TUNING_FOLDS]
        with progress_bar("learning weights", len(folds), train.progress) as report:
            try:
                for left_out in folds:
                    rest = np.setdiff1d(np.arange(len(train)), left_out)
                    others = train[rest]
                    if train.stop or not others.labels.nnz:
                        break
                    some = left_out[: max(1, most // len(folds))]
                    texts = train.texts.take(some)
                    scores = [self._scores_of(each, texts) for each in self._fit_estimators(others)]
                    if run is not None:
                        tuned = run.tune(rest, f"fold {len(done) + 1}")
                        scores += run.held_scores(tuned, others, train[some], self._make_tuned)
                    result.append(scores)
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
        pooled = [self.pool_.probabilities([values[low : low + step] for values in evidence]) for low in starts]
        return Scores.concat(self.hierarchy_, pooled)

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

    # Saving

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = [], {f"pool.{name}": array for name, array in self.pool_.arrays().items()}
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
        nodes, pool = len(self.hierarchy_), self._pool.equal(self.hierarchy_, len(unfitted))
        sizes = {"nodes": nodes, "models": len(unfitted)}
        schemas = {"pool.": Schema(pool.parameters, sizes=sizes, most={"terminals": nodes}, relations=(pool.check,))}
        for index, (each, learned) in enumerate(zip(unfitted, stored, strict=True)):
            each.hierarchy_, each.regime_ = self.hierarchy_, self.regime_
            saved = {name: value for name, value in each.flat_settings().items() if name not in each.unsaved}
            each.check_settings(saved, f"estimator {index}: the setting ")
            schemas[f"{index}."] = each.schema(learned)
        return Schema(parts=schemas, files=(WEIGHTS,) if "tuned" in values else ())

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
        pool = self._pool.equal(self.hierarchy_, len(self.estimators_))
        self.pool_ = pool.restore(with_prefix(arrays, "pool."))

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


def make_folds(train: Training, cv: int, seed: int) -> list[LongArray]:
    """Divide documents into folds, stratified by label, or of whole groups where documents have groups.

    One document alone cannot be left out; of very many, one fold is enough.

    Parameters
    ----------
    train : Training
        Documents.
    cv : int
        The number of folds.
    seed : int
        Seed of the random numbers.

    Returns
    -------
    list of arrays of int64
        The documents of each fold.
    """
    documents, rng = len(train), np.random.default_rng(seed)
    if train.groups is not None:
        folds = draw_folds(documents, cv, seed, train.groups)
        if documents >= MANY_DOCUMENTS:
            folds = [hold_out(documents, LEFT_OUT_OF_MANY, seed, train.groups)]
        return [rng.permutation(fold) for fold in folds if len(fold)]
    order = rng.permutation(documents)
    if documents >= MANY_DOCUMENTS:
        return [order[:LEFT_OUT_OF_MANY]]
    terminals = train.hierarchy.most_specific(train.labels)
    first = np.full(documents, -1)
    some = np.diff(terminals.indptr) > 0
    first[some] = terminals.indices[terminals.indptr[:-1][some]]
    dealt = order[np.argsort(first[order], kind="stable")]
    folds = [dealt[start::cv] for start in range(cv)] if documents > 1 else []
    rng = np.random.default_rng(seed)
    return [rng.permutation(fold) for fold in folds if len(fold)]
