"""scikit-learn on tf-idf: LinearSVC on words, words and pairs, or words and characters; logistic regression."""

from typing import Any

from common import Task, run, sigmoid, softmax, tfidf
from joblib import parallel_config
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion
from sklearn.svm import LinearSVC

VARIANTS = ("words", "pairs", "characters", "logistic")


def features(variant: str) -> Any:
    """Return what makes a matrix of texts."""
    if variant == "characters":
        return FeatureUnion([("words", tfidf()), ("characters", tfidf(analyzer="char_wb", ngram_range=(3, 5)))])
    return tfidf() if variant == "words" else tfidf(ngram_range=(1, 2))


def learn(task: Task) -> Any:
    """Learn one against the rest, several classes at a time where the estimator does not do it by itself."""
    vectorizer = features(task.variant)
    matrix = vectorizer.fit_transform(task.texts)
    if task.variant == "logistic":
        one = LogisticRegression(C=10, solver="liblinear", random_state=task.seed)
    else:
        one = LinearSVC(random_state=task.seed)
    if task.many or task.variant == "logistic":
        one = OneVsRestClassifier(one)
    with parallel_config("threading", n_jobs=task.threads):
        return vectorizer, one.fit(matrix, task.indicator() if task.many else task.single())


def score(task: Task, model: Any) -> Any:
    """Return probabilities, or for margins a softmax; where documents have several labels a sigmoid."""
    vectorizer, classifier = model
    matrix = vectorizer.transform(task.test_texts)
    if task.variant == "logistic":
        return classifier.predict_proba(matrix)
    margins = classifier.decision_function(matrix)
    return sigmoid(margins) if task.many else softmax(margins)


if __name__ == "__main__":
    run(learn, score, variants=VARIANTS)
