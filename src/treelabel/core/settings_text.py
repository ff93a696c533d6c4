"""Settings written behind a name: "name(key=value, ...)", with Python's numbers and lists, and bare words."""

import ast
import re
from collections.abc import Mapping
from typing import Any


def read_settings(inside: str) -> dict[str, Any]:
    """Read "key=value, key=value"; nothing is run, values are literals or words. What is neither is a ValueError.

    >>> read_settings("t=[0.5, 0.4], closed=false, pooling=cls")
    {'t': [0.5, 0.4], 'closed': False, 'pooling': 'cls'}
    """
    try:
        call = ast.parse(f"f({inside})", mode="eval").body
        assert isinstance(call, ast.Call)
        if call.args or any(each.arg is None for each in call.keywords):
            raise ValueError(inside)
        return {str(each.arg): _literal(each.value) for each in call.keywords}
    except (SyntaxError, ValueError, TypeError, AssertionError) as error:
        raise ValueError(inside) from error


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        words = {"true": True, "false": False, "none": None}
        return words.get(node.id.lower(), node.id)
    return ast.literal_eval(node)


def split_settings(text: str) -> tuple[str, str | None]:
    """Split a name from the settings behind it, if there are any.

    >>> split_settings("minilm(max_length=128)"), split_settings("minilm")
    (('minilm', 'max_length=128'), ('minilm', None))
    """
    match = re.fullmatch(r"(.+?)\s*\(([^()]*)\)\s*", text, re.DOTALL)
    return (text.strip(), None) if match is None else (match[1].strip(), match[2])


def with_settings(name: str, settings: Mapping[str, Any]) -> str:
    """Write a name with settings so that they can be read back.

    Parameters
    ----------
    name
        What has the settings, such as an encoder.
    settings
        Values by name.

    Returns
    -------
    str

    >>> with_settings("minilm", {"max_length": 128, "pooling": "cls"}), with_settings("minilm", {})
    ('minilm(max_length=128, pooling=cls)', 'minilm')
    """
    listed = ", ".join(f"{key}={value}" for key, value in settings.items())
    return f"{name}({listed})" if listed else name
