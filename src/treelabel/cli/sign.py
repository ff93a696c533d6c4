"""The command sign: make keys, and sign model folders with them."""

from pathlib import Path
from typing import Annotated

import typer


def sign(
    model: Annotated[Path | None, typer.Argument(metavar="[MODEL]", help="Model folder that fit wrote.")] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Private key (PEM) to sign the model with.")] = None,
    new_key: Annotated[
        Path | None, typer.Option(metavar="NAME", help="Make a pair of keys: NAME.pem and NAME.pub.pem.")
    ] = None,
) -> None:
    """Sign a model, so that others can tell who made it; or make the keys for that.

    Keep NAME.pem to yourself (TREELABEL_KEY_PASSPHRASE encrypts it), and give NAME.pub.pem to those who use your
    models: score, predict, explain and export take it as --require-signature, and TREELABEL_REQUIRE_SIGNATURE
    requires a signature of every model.

    \b
    Examples:
      treelabel sign --new-key ours
      treelabel sign model --key ours.pem
      treelabel predict model new.csv --require-signature ours.pub.pem
    """
    from treelabel.core.errors import TreelabelError
    from treelabel.models.persistence import signing

    if new_key is not None and model is None and key is None:
        private, public = signing.new_key(new_key)
        typer.echo(f"{private}: keep it to yourself; it signs models\n{public}: give it to those who use them")
    elif new_key is None and model is not None and key is not None:
        fingerprint = signing.sign_model(model, key)
        typer.echo(f"{model}: signed with the key {fingerprint}")
    else:
        raise TreelabelError("expected either MODEL and --key FILE, to sign a model, or --new-key NAME, to make keys")
