"""Pages out of templates; everything that people wrote is escaped."""

from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from fastapi import Request, Response
from fastapi.responses import HTMLResponse

import treelabel
from treelabel.core.errors import TreelabelError, printable, shorten
from treelabel.serve.model_store import ServedModel
from treelabel.serve.problems import ProblemError
from treelabel.serve.service import service_of

LONGEST_LABEL = 300
# What the page is made of, beside its HTML.
STATIC = {
    "style.css": "text/css; charset=utf-8",
    "theme.js": "text/javascript; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
# With no referrer at all, browsers do not say where a form is from, and forms of other sites are refused.
HEADERS = {"Referrer-Policy": "same-origin"}


def render_page(request: Request, template: str, served: ServedModel | None, **values: Any) -> Response:
    """Fill in a template.

    Parameters
    ----------
    request
        The request that is answered.
    template
        The name of the template, without its ending.
    served
        The model that the page is about; None where there is none.
    **values
        What the template shows.

    Returns
    -------
    Response
    """
    service = service_of(request)
    page = (
        _environment()
        .get_template(f"{template}.html.j2")
        .render(
            root=request.scope.get("root_path", ""),
            current=template,
            served=served,
            models=[each.id for each in service.store],
            learns=service.options.learn,
            needs_token=request.app.state.tokens.are_required,
            version=treelabel.__version__,
            **values,
        )
    )
    return HTMLResponse(page, headers=HEADERS)


def render_problem(problem: ProblemError) -> Response:
    """Return an error as a page; without a token, this is where one is entered."""
    page = _environment().get_template("problem.html.j2").render(problem=problem, version=treelabel.__version__)
    return HTMLResponse(page, problem.status, {**HEADERS, **(problem.headers or {})})


@cache
def static_file(name: str) -> bytes:
    """Return a file that pages ask for; the style begins with what reports have, too."""
    if name not in STATIC:
        raise ProblemError(404, "there is no such file")
    content = files("treelabel.serve.page").joinpath("static", name).read_bytes()
    shared = files("treelabel.core").joinpath("page_style.css").read_bytes() if name == "style.css" else b""
    return shared + content


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("treelabel.serve.page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"count": _count, "share": _share, "label": _label}
    return made


def _count(value: float) -> str:
    return f"{int(value):,}"


def _share(value: float) -> str:
    """Write a probability; what is not 0 or 1 is not written so.

    >>> _share(0.5), _share(0.9999), _share(0.0001), _share(1)
    ('0.50', '>0.99', '<0.01', '1.00')
    """
    if 0 < value < 0.005:
        return "<0.01"
    return ">0.99" if 0.995 <= value < 1 else f"{value:.2f}"


def _label(text: str) -> str:
    """Shorten a label or a path, and drop what is not a character of a page."""
    return printable(shorten(text, LONGEST_LABEL))


def number_of(text: str, what: str) -> float:
    """Read a number of a form between 0 and 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise TreelabelError(f"{what}: expected a number from 0 to 1")
    return value
