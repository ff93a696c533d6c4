"""FINDINGS: all checks in the order in which they are reported; adding one is a function and a row."""

from collections.abc import Callable
from dataclasses import dataclass

from treelabel.core.registry import Registry
from treelabel.data.checks import label_checks, level_columns, text_checks
from treelabel.data.checks.finding import CheckInput, Finding
from treelabel.data.dataset import Dataset


@dataclass(frozen=True)
class Check:
    """A row of FINDINGS: what is looked for, and the function that looks."""

    name: str
    help: str
    find: Callable[[CheckInput], Finding | None]
    # Whether data that have numeric features in place of texts are passed over.
    needs_texts: bool = False


FINDINGS: Registry[Check] = Registry(
    "finding",
    (
        Check("level_columns", "columns that look like levels of a hierarchy", level_columns.find_level_columns),
        Check("several_labels", "cells that look like several labels", label_checks.find_several_labels),
        Check("spellings", "labels that differ in case, spaces, entities, Unicode", label_checks.find_spellings),
        Check("similar_names", "labels that differ in punctuation alone", label_checks.find_similar_names),
        Check("other_separators", "paths with another separator", label_checks.find_other_separators),
        Check("several_parents", "names under several parents", label_checks.find_several_parents),
        Check(
            "shared_texts", "texts that are in the training data, too", text_checks.find_shared_texts, needs_texts=True
        ),
        Check("contradictions", "equal texts with different labels", text_checks.find_contradictions, needs_texts=True),
        Check("copies", "equal texts with the same labels", text_checks.find_copies, needs_texts=True),
        Check("empty_texts", "documents without text", text_checks.find_empty_texts, needs_texts=True),
        Check("numeric_texts", "numbers, dates or ids for texts", text_checks.find_numeric_texts, needs_texts=True),
        Check(
            "unshared_words", "texts without a word that another has", text_checks.find_unshared_words, needs_texts=True
        ),
        Check("unlabelled", "documents without labels", text_checks.find_unlabelled),
        Check("equal_ids", "ids of several documents", text_checks.find_equal_ids),
        Check("one_label", "the same labels for all documents", label_checks.find_one_label),
        Check("rare_labels", "labels with too few texts to learn", label_checks.find_rare_labels),
        Check("unseen_labels", "labels without a text in training", label_checks.find_unseen_labels),
    ),
)


def find_problems(data: Dataset, train: Dataset | None = None) -> list[Finding]:
    """Look for all that FINDINGS lists, in time linear in the size of the data.

    Parameters
    ----------
    data : Dataset
        What to look at; lines and columns are known if it was read from a file.
    train : Dataset, optional
        What a model would learn from, if `data` is to test it.

    Returns
    -------
    list of Finding
        The serious ones first.

    >>> from treelabel.hierarchy import Hierarchy
    >>> data = Dataset.of(["a", "A", "", "b"], ["x", "y", "x", "y"], Hierarchy.flat(["x", "y"]))
    >>> [(each.kind, each.count) for each in find_problems(data)]
    [('contradictions', 2), ('empty_texts', 1), ('rare_labels', 2)]
    """
    inspected = CheckInput(data, train)
    checks = [check for check in FINDINGS.values() if data.features is None or not check.needs_texts]
    findings = [finding for check in checks if (finding := check.find(inspected)) is not None]
    return sorted(findings, key=lambda finding: not finding.is_serious)
