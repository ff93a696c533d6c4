"""Evidence for candidates becomes probabilities: isotonic, or shared out between paths."""

import numpy as np
import pytest
from scipy import sparse

from treelabel import Hierarchy
from treelabel.calibration.candidates import CandidateIsotonic, CandidateSoftmax, largest_evidence
from treelabel.models.check import CASES, TREE
from treelabel.models.model_inputs import training_of


def test_more_evidence_is_never_less_likely_and_probabilities_fit() -> None:
    rng, names = np.random.default_rng(0), [str(number) for number in range(40)]
    p = rng.random((400, 40)) * 0.3
    true = rng.random(p.shape) < p
    held = training_of(["x"] * 400, [[names[at] for at in np.flatnonzero(row)] for row in true], Hierarchy.flat(names))
    evidence = sparse.csr_array((p**3).astype(np.float32))
    found = (
        CandidateIsotonic(held.hierarchy, np.ones(40, np.int64))
        .fit(evidence, held.labels)
        .probabilities(evidence)
        .toarray()
    )
    order = np.argsort(p.ravel())
    assert (np.diff(found.ravel()[order]) >= -1e-6).all()
    assert found.sum() == pytest.approx(true.sum(), rel=0.05)
    assert np.abs(found - p).mean() < 0.03


def test_one_path_shares_out_what_there_is() -> None:
    case = CASES["path"]
    held = training_of(case.texts, case.labels, TREE)
    counts = np.bincount(TREE.most_specific(held.labels).indices, minlength=len(TREE))
    kind = CandidateSoftmax(TREE, counts)
    nothing = sparse.csr_array((3, len(TREE)), dtype=np.float32)
    ends = kind.probabilities(nothing).toarray()[0]
    assert ends[TREE.names.index("cat")] == pytest.approx(0.25, abs=1e-3)
    assert ends[TREE.names.index("pet")] == pytest.approx(0.75, abs=1e-3)
    sure = sparse.csr_array(np.where(np.arange(len(TREE)) == TREE.names.index("dog"), 5.0, 0)[None].astype(np.float32))
    assert kind.probabilities(sure).toarray()[0, TREE.names.index("dog")] > 0.99


def test_the_largest_evidence_is_kept() -> None:
    evidence = sparse.csr_array(np.array([[0.1, 3.0, 2.0, 0.5], [0, 0, 1.0, 0]], np.float32))
    assert largest_evidence(evidence, 2).toarray().tolist() == [[0, 3.0, 2.0, 0], [0, 0, 1.0, 0]]
    # Where none is left out, nothing is copied.
    assert largest_evidence(evidence, 4) is evidence
    assert largest_evidence(evidence[:0], 0).shape == (0, 4)
