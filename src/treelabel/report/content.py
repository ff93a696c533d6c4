"""Every number of a report, before anything is drawn or written."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations, islice
from typing import Any

import numpy as np

from treelabel.core.types import DoubleArray
from treelabel.data.dataset import Dataset
from treelabel.data.transforms import under
from treelabel.evaluation.alignment import common_hierarchy
from treelabel.evaluation.comparison import ComparisonTable, compare_results
from treelabel.evaluation.reliability_bins import Reliability
from treelabel.report.confusion import (
    Confusion,
    SiblingTable,
    far_confusions,
    sibling_confusions,
    sibling_counts,
    sibling_tables,
)
from treelabel.report.guaranteed_sets import GuaranteedSets, guaranteed_sets, is_covering
from treelabel.report.mistakes import LONGEST_TEXT, MOST_MISTAKES, Mistake, costliest_mistakes
from treelabel.report.operating_curve import Curve, operating_curve
from treelabel.report.reliability import reliability
from treelabel.report.sentences import HEADLINES
from treelabel.report.slices import Slice, by_bin, by_decile, by_depth
from treelabel.report.systems import SCORE_METRICS, ReportSystem, judge_systems, occurring
from treelabel.rules.decisions import TunedRule
from treelabel.rules.tuned_rule import column_of

MOST_PAIRS = 45
# Characters of texts in all mistakes of all systems.
MOST_TEXT = 800_000


@dataclass(frozen=True, eq=False)
class Details:
    """The part of a report about one system alone."""

    curve: Curve | None
    reliability: list[Reliability]
    siblings: list[Confusion]
    sibling_tables: list[SiblingTable]
    far: list[Confusion]
    mistakes: list[Mistake]
    wrong_documents: int
    sets: GuaranteedSets | None = None


@dataclass(frozen=True, eq=False)
class Pair:
    """The F1 of labels under two systems, those left out that are never true nor predicted; and the true documents."""

    first: str
    second: str
    first_f1: DoubleArray
    second_f1: DoubleArray
    documents: DoubleArray

    @property
    def first_better(self) -> int:
        """The number of labels on which the first system has the higher F1."""
        return int(np.sum(self.first_f1 > self.second_f1))

    @property
    def second_better(self) -> int:
        """The number of labels on which the second system has the higher F1."""
        return int(np.sum(self.second_f1 > self.first_f1))


@dataclass(frozen=True, eq=False)
class Content:
    """Everything that a report shows; `reference` says where the frequencies of labels come from.

    `comparison` is of all systems, by what all of them have; `score_comparison` of those with scores, by what only
    these have.
    """

    title: str
    notes: list[str]
    systems: list[ReportSystem]
    headlines: list[str]
    description: list[tuple[str, str]]
    depth: list[Slice]
    deciles: list[Slice]
    bins: list[Slice]
    details: list[Details]
    comparison: ComparisonTable | None
    score_comparison: ComparisonTable | None
    pairs: list[Pair]
    reference: str
    # What the documents are called, and the day of the report.
    data: str = ""
    date: str = ""

    @property
    def documents(self) -> int:
        """The number of documents that were judged."""
        return self.systems[0].result.count


def make_content(
    truth: Dataset,
    systems: Mapping[str, Any],
    train: Dataset | None = None,
    rule: str | TunedRule | None = None,
    texts: bool = True,
    title: str | None = None,
    note: str | None = None,
    resamples: int = 1000,
    seed: int = 0,
    data: str = "",
) -> Content:
    """Judge systems, and gather all numbers of their report.

    Parameters
    ----------
    truth, systems, train, rule, texts, title, note, seed, data
        As for `write_report`.
    resamples : int
        Of the bootstrap.

    Returns
    -------
    Content
    """
    hierarchy = common_hierarchy(*systems.values(), truth, train=train)
    truth, train = under(truth, hierarchy), None if train is None else under(train, hierarchy)
    judged = judge_systems(truth, systems, train, rule, resamples, seed)
    named = {system.name: system.result for system in judged}
    longest = min(LONGEST_TEXT, MOST_TEXT // (MOST_MISTAKES * len(judged)))
    several = len(judged) > 1
    return Content(
        title=title if title is not None else _title(list(systems), data),
        notes=[*([] if note is None else [note]), *_notes(judged)],
        systems=judged,
        headlines=[name for name in HEADLINES if any(name in system.result.values for system in judged)],
        description=truth.describe(train).rows(),
        depth=by_depth(judged),
        deciles=by_decile(judged),
        bins=by_bin(judged),
        details=[_details(system, truth, texts, longest, column_of(rule)) for system in judged],
        comparison=compare_results(named, HEADLINES, resamples, seed) if several else None,
        score_comparison=_compare_scores(judged, resamples, seed),
        pairs=_pairs(judged) if several else [],
        reference="the truth (no training data given)" if train is None else "training",
        data=data,
        date=f"{datetime.now():%-d %B %Y}",
    )


def _title(systems: list[str], data: str) -> str:
    """Call a report by its systems and its data."""
    names = ", ".join(systems[:3]) + (" and others" if len(systems) > 3 else "")
    return f"{names} on {data}" if data else f"Classification report: {names}"


def _notes(systems: list[ReportSystem]) -> list[str]:
    """Notes that a reader must know first: unknown labels, who got no label, and which rule nobody asked for."""
    notes = []
    for system in systems:
        coverage = system.result.coverage
        named = f"{system.name}: " if len(systems) > 1 else ""
        notes += [f"{named}{note}" for note in system.result.remarks.notes(system.hierarchy)]
        if coverage is not None and coverage.with_label < coverage.documents:
            without = coverage.documents - coverage.with_label
            meaning = "counts as wrong"
            if is_covering(system.rule):
                meaning = (
                    "stands for the root and covers any label, but counts as wrong in all metrics but those of sets"
                )
            notes.append(f"{named}{without:,} of {coverage.documents:,} documents got no label, which {meaning}.")
    default = {system.rule for system in systems if system.result.is_default_rule}
    notes += [f"Scores were decided by the rule {rule}, as predict decides for labels like these." for rule in default]
    return notes


def _compare_scores(systems: list[ReportSystem], resamples: int, seed: int) -> ComparisonTable | None:
    """Compare the systems that have scores by metrics of these, where others have none; the first must be one."""
    scored = [system for system in systems if system.scores is not None]
    if len(scored) in (len(systems), 0, 1) or systems[0].scores is None:
        return None
    named = {system.name: system.result for system in scored}
    return compare_results(named, [name for name in HEADLINES if name in SCORE_METRICS], resamples, seed)


def _details(system: ReportSystem, truth: Dataset, texts: bool, longest: int, column: str | None) -> Details:
    values = [] if column is None or column not in truth.extra else truth.extra[column].to_pylist()
    counts = sibling_counts(system.hierarchy, system.truth, system.decisions)
    return Details(
        curve=operating_curve(system),
        reliability=reliability(system),
        siblings=sibling_confusions(system, counts),
        sibling_tables=sibling_tables(system, counts),
        far=far_confusions(system),
        mistakes=costliest_mistakes(system, truth, texts, longest=longest),
        wrong_documents=int(np.sum(system.result.documents["shortest_path"] > 0)),
        sets=guaranteed_sets(system, column if values else None, values),
    )


def _pairs(systems: list[ReportSystem]) -> list[Pair]:
    result = []
    for one, two in islice(combinations(systems, 2), MOST_PAIRS):
        keep = occurring([one, two])
        values = one.label_f1[keep], two.label_f1[keep], one.label_counts[keep, 1]
        result.append(Pair(one.name, two.name, *values))
    return result
