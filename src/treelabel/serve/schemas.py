"""Requests and answers of the service. Requests are checked by pydantic; answers are plain dicts of these shapes."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import TypedDict

Probability = Annotated[float, Field(ge=0, le=1)]
# A name, a path "A > B", a URI or a notation; or the names of a path from the top.
LabelText = Annotated[str, Field(min_length=1, max_length=10_000)]
LabelRef = LabelText | Annotated[list[LabelText], Field(min_length=1, max_length=1_000)]
Scope = Literal["predict", "learn", "admin"]


class _Request(BaseModel):
    """A request; names that it does not have are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TextsRequest(_Request):
    """One text or several."""

    text: str | None = Field(default=None, description="One text.")
    texts: list[str] | None = Field(default=None, description="Several texts, in place of `text`.")

    @model_validator(mode="after")
    def _require_one_kind(self) -> "TextsRequest":
        if (self.text is None) == (self.texts is None):
            raise ValueError("expected either text or texts")
        return self

    @property
    def documents(self) -> list[str]:
        """The texts as a list."""
        return [self.text] if self.text is not None else list(self.texts or ())


class PredictSettings(_Request):
    """How to decide on the labels of texts."""

    rule: str | None = Field(
        default=None, max_length=1_000, description="A decision rule with settings, as optimal:hf1; or a tuned one."
    )
    k: int | None = Field(default=None, ge=1, le=1_000, description="How many labels: the setting k of the rule.")
    threshold: Probability | None = Field(default=None, description="The least probability of labels: t of the rule.")
    unknown: Probability | None = Field(default=None, description="Abstain where no top label has this probability.")
    known: list[LabelRef] = Field(
        default_factory=list, max_length=100, description="Labels known to be right: only labels below are predicted."
    )
    alternatives: int = Field(default=0, ge=0, le=100, description="How many other likely leaves to list.")
    explain: bool = Field(default=False, description="Whether to list the words that support and oppose each label.")


class PredictRequest(TextsRequest, PredictSettings):
    """Texts whose labels to predict."""


class ScoreRequest(TextsRequest):
    """Texts of which to return the likeliest nodes."""

    k: int = Field(default=10, ge=1, le=1_000, description="How many nodes of each text.")


class ExplainRequest(_Request):
    """A text whose prediction to explain."""

    text: str
    label: LabelRef | None = Field(default=None, description="The label to explain; by default the predicted ones.")


class Correction(_Request):
    """The right labels of a text as a person says, or that there is none for it."""

    text: Annotated[str, Field(min_length=1)]
    labels: list[LabelRef] = Field(max_length=1_000, description="The right labels; none: the text has no label.")
    id: str | None = Field(default=None, max_length=1_000, description="The document's id.")
    predicted: list[LabelRef] | None = Field(default=None, max_length=1_000, description="What had been suggested.")
    source: str | None = Field(default=None, max_length=200, description="Who says so: an annotator, or a tool.")


class FeedbackRequest(_Request):
    """Corrections to write to the journal; either all of them are accepted, or none."""

    corrections: list[Correction] = Field(min_length=1, max_length=1_000)


class VersionRequest(_Request):
    """A version of a model."""

    version: str | None = Field(default=None, max_length=200, description="By default the newest one.")


class ReviewRequest(_Request):
    """Texts to put in the order in which a person should label them."""

    texts: list[str] = Field(min_length=1)
    limit: int = Field(default=20, ge=1, le=1_000)
    precision: float = Field(default=0.95, gt=0, le=1, description="The least share of right ones.")


class NodeProbability(TypedDict):
    """A node with its probability."""

    node: int
    label: str
    probability: float


class LabelAnswer(TypedDict):
    """A label with its path, and the probability of every node along it, from the top down."""

    node: int
    label: str
    path: str
    uri: str | None
    notation: str | None
    probability: float
    ancestors: list[NodeProbability]


class StepAnswer(TypedDict):
    """The words that support and oppose one step of a path."""

    node: int
    label: str
    probability: float
    supporting: list[tuple[str, float]]
    opposing: list[tuple[str, float]]


class SetAnswer(TypedDict):
    """The set of a rule that covers a true label: its nodes, the leaves below, and whether it is the root: anything."""

    nodes: int
    leaves: int
    is_root: bool


class DocumentAnswer(TypedDict):
    """The prediction for one text; `set` is null by other rules, and `explanation` unless it was asked for."""

    labels: list[LabelAnswer]
    abstained: bool
    set: SetAnswer | None
    alternatives: list[LabelAnswer]
    explanation: list[StepAnswer] | None


class PredictAnswer(TypedDict):
    """Predictions, one for each text in order; `promise` is what the rule promises, null if nothing."""

    model: str
    version: str
    request_id: str
    rule: str
    promise: str | None
    documents: list[DocumentAnswer]


class ScoredDocument(TypedDict):
    """The likeliest nodes of one text, likeliest first."""

    nodes: list[LabelAnswer]


class ScoreAnswer(TypedDict):
    """The likeliest nodes, one list for each text in order."""

    model: str
    version: str
    request_id: str
    documents: list[ScoredDocument]


class ExplainAnswer(TypedDict):
    """The steps of the explained paths."""

    model: str
    version: str
    request_id: str
    steps: list[StepAnswer]


class ModelSummary(TypedDict):
    """A model in the list of models."""

    id: str
    version: str
    kind: str
    labels: int
    depth: int
    rule: str


class ModelAnswer(ModelSummary):
    """All that is known of a model; `promise` is that of its own rule, `tuned_rules` what each of the others does."""

    promise: str | None
    tuned_rules: dict[str, str]
    leaves: int
    level_sizes: list[int]
    is_tree: bool
    regime: str
    training_documents: int
    fingerprint: str
    evidence: dict[str, Any]
    summary: str
    signature: str | None
    versions: list[str]


class ModelsAnswer(TypedDict):
    """All models."""

    models: list[ModelSummary]


class NodeSummary(TypedDict):
    """A node of the hierarchy."""

    node: int
    label: str
    path: str
    uri: str | None
    notation: str | None
    depth: int
    child_count: int
    training_documents: int


class NodeAnswer(TypedDict):
    """A node (null: the root) with its ancestors from the top down, and some of its children."""

    node: NodeSummary | None
    ancestors: list[NodeSummary]
    child_count: int
    descendant_count: int
    children: list[NodeSummary]


class SearchAnswer(TypedDict):
    """The nodes that a search found, best first."""

    nodes: list[NodeSummary]


class FeedbackAnswer(TypedDict):
    """How many corrections were written, and how many the journal has now."""

    accepted: int
    journal: int


class JobAnswer(TypedDict):
    """A job: the model that learns, how far it is, the version that it made, or why it failed."""

    id: str
    model: str
    status: Literal["running", "done", "failed"]
    created: str
    finished: str | None
    version: str | None
    passed: bool | None
    evaluation: dict[str, float] | None
    error: str | None


class JobsAnswer(TypedDict):
    """All jobs, the newest first."""

    jobs: list[JobAnswer]


class VersionAnswer(TypedDict):
    """The version of a model that is current now."""

    model: str
    version: str


class Alternative(TypedDict):
    """A likely label that was not suggested."""

    node: int
    label: str
    path: str
    probability: float


class ReviewedText(TypedDict):
    """A text to label: the suggested paths, their probability, whether that is safe to accept, and what else."""

    text: str
    labels: list[str]
    probability: float
    is_safe: bool
    priority: float
    alternatives: list[Alternative]


class ReviewAnswer(TypedDict):
    """Texts to label, the most useful first, and how many there are."""

    model: str
    version: str
    remaining: int
    texts: list[ReviewedText]


class ProblemAnswer(TypedDict):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
