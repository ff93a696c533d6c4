"""Signals that end commands, and their exit codes."""

# What typer, too, makes of Ctrl-C; and what shells make of SIGTERM.
INTERRUPTED = 130
TERMINATED = 143


class Terminated(BaseException):
    """SIGTERM: unlike Ctrl-C, which some commands take as a wish to end early, it always means to abort."""
