"""Help of a command: its own options first, then those of reading files, which many commands share."""

from typing import Any, get_type_hints

from typer.core import TyperCommand

from treelabel.cli.options import ReadArguments

# By their help, as a command may have an option of its own by the same name.
_READING = {
    name: hint.__metadata__[0].help
    for name, hint in get_type_hints(ReadArguments, include_extras=True).items()
    if hasattr(hint, "__metadata__")
}


class Command(TyperCommand):
    """A command whose help has the options of reading files under a heading of their own."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the help of arguments and options, those of reading last."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], "Reading files": []}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is not None:
                name = "Arguments" if each.param_type_name == "argument" else "Options"
                is_reading = name == "Options" and _READING.get(str(each.name)) == each.help  # type: ignore[attr-defined]
                sections["Reading files" if is_reading else name].append(record)
        for name, rows in sections.items():
            if rows:
                with formatter.section(name):
                    formatter.write_dl(rows)
