"""Routes of the web page; /v1 has the same for programs."""

import json
import re
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, File, Form, Query, Request, Response, UploadFile

from treelabel.core.errors import TreelabelError
from treelabel.serve.model_store import ServedModel
from treelabel.serve.page.labelled_files import MEDIA_TYPES, label_file
from treelabel.serve.page.model_facts import calibration_of, label_rows
from treelabel.serve.page.rendering import STATIC, number_of, render_page, render_problem, static_file
from treelabel.serve.page.suggestions import offered_rules, suggest
from treelabel.serve.prediction import find_node
from treelabel.serve.problems import ProblemError, route_with_errors
from treelabel.serve.schemas import Correction, LabelRef, ReviewAnswer
from treelabel.serve.security import SCOPES, require
from treelabel.serve.service import Service, request_id_of, service_of
from treelabel.serve.taxonomy import ROOT, describe_node, find_nodes

AService = Annotated[Service, Depends(service_of)]
PREDICT, LEARN, ADMIN = ([Depends(require(scope))] for scope in SCOPES)
router = APIRouter(route_class=route_with_errors(render_problem), include_in_schema=False)
# Rows of tables and lists.
PAGE_ROWS = 50
MOST_MATCHES = 50
QUEUE_ROWS = 20
# Browsers keep the page's files for so many seconds.
STATIC_AGE = 3600


def served_model(service: AService, model: Annotated[str | None, Query()] = None) -> ServedModel:
    """Return the model that the address of a page names; by default the first."""
    return next(iter(service.store)) if model is None else service.store.get(model)


AModel = Annotated[ServedModel, Depends(served_model)]


@router.get("/page/static/{name}")
async def static(name: str) -> Response:
    """Return a file that pages ask for."""
    return Response(static_file(name), media_type=STATIC[name], headers={"Cache-Control": f"max-age={STATIC_AGE}"})


# Trying


@router.get("/", dependencies=PREDICT)
@router.get("/page/try", dependencies=PREDICT)
async def try_page(request: Request, served: AModel) -> Response:
    """Show the form for a text."""
    return render_page(request, "try", served, text="", suggestion=None, unknown=0.0, other="", rules=offered_rules())


@router.post("/page/try", dependencies=PREDICT)
async def try_text(
    request: Request,
    served: AModel,
    service: AService,
    text: Annotated[str, Form()] = "",
    rule: Annotated[str, Form()] = "",
    other: Annotated[str, Form()] = "",
    unknown: Annotated[str, Form()] = "0",
) -> Response:
    """Suggest labels for a text."""
    least = number_of(unknown, "leave unknown below")
    asked = other.strip() or rule.strip() or None
    # Browsers send line breaks of forms as two characters.
    text = text.replace("\r\n", "\n")
    made = await service.work(lambda: suggest(served, text, asked, least or None))
    return render_page(
        request, "try", served, text=text, suggestion=made, unknown=least, other=other, rules=offered_rules()
    )


@router.post("/page/file", dependencies=PREDICT)
async def label_upload(
    served: AModel,
    service: AService,
    file: Annotated[UploadFile, File()],
    rule: Annotated[str, Form()] = "",
    column: Annotated[str, Form()] = "",
) -> Response:
    """Send a file back with labels."""
    content, name = await file.read(), file.filename or ""
    made = await label_file(service.work, served, name, content, rule or None, column or None)
    stem = re.sub(r"[^\w.-]+", "_", name.rpartition(".")[0]) or "texts"
    target = quote(f"{stem}-labelled{made.ending}")
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{target}", "X-Rows": str(made.rows)}
    return Response(made.content, media_type=MEDIA_TYPES[made.ending], headers=headers)


# Corrections


@router.post("/page/feedback", dependencies=LEARN)
async def save_correction(
    request: Request,
    served: AModel,
    service: AService,
    document: Annotated[str, Form()],
    choice: Annotated[str, Form()] = "",
    predicted: Annotated[str, Form()] = "",
    label: Annotated[str, Form()] = "",
    node: Annotated[list[int], Form()] = [],  # noqa: B006  FastAPI copies it
) -> Response:
    """Write what a person says of a text to the journal.

    `document` is the text as JSON: in a form, line breaks would not stay what they are. `choice` is the nodes of the
    button that was pressed, separated by blanks, none for unknown; or "label" for those of `node` and what was typed.
    """
    labels: list[LabelRef] = [_path(served, each) for each in (node if choice == "label" else _nodes(choice))]
    if choice == "label":
        labels += [label.strip()] if label.strip() else []
        if not labels:
            raise TreelabelError("expected a label; to say that none fits, mark the text as unknown")
    correction = Correction(
        text=_text(document),
        labels=labels,
        predicted=[_path(served, each) for each in _nodes(predicted)],
        source="page",
    )
    answer = await service.record(served, [correction], request_id_of(request))
    h = served.model.hierarchy_
    paths = h.paths([find_node(h, each) for each in labels]) if labels else []
    return render_page(request, "saved", served, paths=paths, journal=answer["journal"])


def _text(document: str) -> str:
    try:
        text = json.loads(document)
    except ValueError:
        text = None
    if not isinstance(text, str) or not text:
        raise ProblemError(422, "document: expected a text as JSON, not an empty one")
    return text


def _nodes(text: str) -> list[int]:
    if not re.fullmatch(r"[\d ]*", text, re.ASCII):
        raise ProblemError(422, "expected the numbers of nodes")
    return [int(each) for each in text.split()]


def _path(served: ServedModel, node: int) -> list[str]:
    """Return the names of a path, which say exactly which node is meant."""
    h = served.model.hierarchy_
    if not 0 <= node < len(h):
        raise ProblemError(422, f"there is no node {node}")
    return list(h.path_names(node))


# The model and its labels


@router.get("/page/model", dependencies=PREDICT)
async def model_page(
    request: Request,
    served: AModel,
    service: AService,
    order: Annotated[str, Query(pattern="^(taxonomy|documents|rarest)$")] = "documents",
    offset: Annotated[int, Query(ge=0, le=1 << 31)] = 0,
) -> Response:
    """Show what is known of a model."""
    return render_page(
        request,
        "model",
        served,
        about=service.describe(served),
        calibration=calibration_of(served.model),
        rows=label_rows(served, order, offset, PAGE_ROWS),
        order=order,
        offset=offset,
        page_rows=PAGE_ROWS,
    )


@router.get("/page/taxonomy", dependencies=PREDICT)
async def taxonomy_page(
    request: Request,
    served: AModel,
    node: Annotated[int, Query(ge=ROOT, le=1 << 31)] = ROOT,
    offset: Annotated[int, Query(ge=0, le=1 << 31)] = 0,
    q: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Show a node with its children, or what a search finds."""
    return render_page(
        request,
        "taxonomy",
        served,
        place=describe_node(served, node, offset, PAGE_ROWS),
        offset=offset,
        page_rows=PAGE_ROWS,
        query=q,
        matches=find_nodes(served, q, MOST_MATCHES) if q else [],
        most_matches=MOST_MATCHES,
    )


# Reviewing and learning


@router.get("/page/review", dependencies=LEARN)
async def review_page(request: Request, served: AModel, service: AService) -> Response:
    """Show the texts of the pool that are most useful to label next."""
    has_pool = service.options.pool is not None
    queue = await service.review(served, QUEUE_ROWS) if has_pool else None
    return _render_queue(request, served, queue, has_pool)


@router.post("/page/review", dependencies=PREDICT)
async def review_texts(
    request: Request, served: AModel, service: AService, texts: Annotated[str, Form()] = ""
) -> Response:
    """Put texts of a form, one a line, in the order in which it is most useful to label them."""
    listed = list(dict.fromkeys(line.strip() for line in texts.splitlines() if line.strip()))
    if not listed:
        raise TreelabelError("expected a text in each line")
    service.require_documents(len(listed))
    queue = await service.review(served, QUEUE_ROWS, listed)
    return _render_queue(request, served, queue, has_pool=True, texts=texts)


def _render_queue(
    request: Request, served: ServedModel, queue: ReviewAnswer | None, has_pool: bool, texts: str = ""
) -> Response:
    h, is_multi = served.model.hierarchy_, served.model.regime_ == "multi_path"
    rows = [] if queue is None else queue["texts"]
    shown = [{**each, "nodes": [find_node(h, path) for path in each["labels"]]} for each in rows]
    values = {"queue": queue and {**queue, "texts": shown}, "has_pool": has_pool, "texts": texts, "is_multi": is_multi}
    return render_page(request, "review", served, **values)


@router.get("/page/jobs", dependencies=PREDICT)
async def jobs_page(request: Request, served: AModel, service: AService) -> Response:
    """Show jobs and versions."""
    return _render_jobs(request, served, service)


@router.post("/page/jobs/learn", dependencies=LEARN)
async def start_learning(request: Request, served: AModel, service: AService) -> Response:
    """Learn from the journal."""
    await service.learn(served)
    return _render_jobs(request, served, service)


@router.post("/page/jobs/promote", dependencies=ADMIN)
async def promote_version(
    request: Request, served: AModel, service: AService, version: Annotated[str, Form(max_length=200)]
) -> Response:
    """Make a version current."""
    return _render_jobs(request, await service.promote(served, version), service)


@router.post("/page/jobs/rollback", dependencies=ADMIN)
async def go_back(request: Request, served: AModel, service: AService) -> Response:
    """Make the version before the current one current again."""
    return _render_jobs(request, await service.rollback(served), service)


def _render_jobs(request: Request, served: ServedModel, service: Service) -> Response:
    journal = service.journal(served.id).lines if service.options.learn else 0
    notes = service.versions(served.id)[::-1]
    return render_page(request, "jobs", served, jobs=service.jobs.list(), journal=journal, notes=notes)
