"""The command serve: models over HTTP."""

from pathlib import Path
from typing import Annotated

import typer

from treelabel.core.errors import require_extra


def serve(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Model folders that fit wrote.")],
    host: Annotated[str, typer.Option(help="Address to listen on; the default is this machine alone.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8080,
    learn: Annotated[bool, typer.Option("--learn", help="Accept corrections, and let models learn from them.")] = False,
    state: Annotated[Path, typer.Option(help="Folder of what the service writes.")] = Path("treelabel-serve"),
) -> None:
    """Serve models over HTTP.

    \b
    Example:
      treelabel serve model --port 8080
    """
    with require_extra("serve", "serving models"):
        import uvicorn

        from treelabel.serve.app import create_app
        from treelabel.serve.options import ServeOptions

    uvicorn.run(create_app(models, ServeOptions(state=state, learn=learn)), host=host, port=port)
