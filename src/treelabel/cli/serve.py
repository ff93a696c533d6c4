"""The command serve: models over HTTP."""

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer

from treelabel.core.errors import TreelabelError, require_extra


def serve(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Model folders that fit wrote.")],
    host: Annotated[str, typer.Option(help="Address to listen on; the default is this machine alone.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8080,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Tokens: lines of a scope (predict, learn, admin) and a token.")
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="Listen beyond this machine even without tokens.")] = False,
    learn: Annotated[bool, typer.Option("--learn", help="Accept corrections, and let models learn from them.")] = False,
    state: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where the service writes corrections and versions of models.")
    ] = Path("treelabel-serve"),
    train: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Training data, for models that must learn from all of it again."),
    ] = None,
    evaluation: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Labelled documents; a version that is worse on them is not promoted."),
    ] = None,
    rule: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A rule that tune wrote, for requests that name its file (repeat)."),
    ] = None,
    pool: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Texts without labels, for the review queue.")
    ] = None,
    origin: Annotated[
        list[str] | None, typer.Option(help="Origin of a web page that may call the service (repeat).")
    ] = None,
    max_body: Annotated[int, typer.Option(min=1, help="Largest size of a request, in bytes.")] = 10_000_000,
    max_documents: Annotated[int, typer.Option(min=1, help="Largest number of texts in a request.")] = 1_000,
    max_concurrency: Annotated[int, typer.Option(min=1, help="Largest number of requests at once.")] = 256,
) -> None:
    """Serve models over HTTP: predictions, the taxonomy, corrections and learning from them.

    A model goes by the name of its folder. A folder that is replaced is loaded again while requests are answered.
    GET /openapi.json describes all routes, and docs/serve.md has examples.

    \b
    Examples:
      treelabel serve model
      treelabel serve model --learn --train train.csv --evaluation test.csv \\
        --token-file tokens.txt
      curl http://127.0.0.1:8080/v1/models/model/predict \\
        --json '{"text": "chocolate cookie"}'
    """
    with require_extra("serve", "serving models"):
        from treelabel.serve.options import ServeOptions
        from treelabel.serve.server import run_server

    is_local = _is_local(host)
    if not is_local and token_file is None and not public:
        raise TreelabelError(
            f"--host {host} can be reached from other machines, and without --token-file everybody there may do "
            "everything; give tokens, or --public if something in front of the service checks who asks"
        )
    options = ServeOptions(
        state=state,
        learn=learn,
        train=train,
        evaluation=evaluation,
        rules=tuple(rule or ()),
        pool=pool,
        token_file=token_file,
        origins=tuple(origin or ()),
        # A page elsewhere whose name leads here must not take this service for its own.
        hosts=("localhost", "127.0.0.1", host) if is_local and ":" not in host else (),
        max_body=max_body,
        max_documents=max_documents,
        max_concurrency=max_concurrency,
    )
    for file in (train, evaluation, pool, token_file, *(rule or ())):
        if file is not None and not file.is_file():
            raise TreelabelError(f"{file}: no such file")
    run_server(models, options, host, port)


def _is_local(host: str) -> bool:
    """Return whether an address is of this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
