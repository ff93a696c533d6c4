"""The one place that names the Python of a child process: nothing of the working folder is imported by it."""

import sys


def child_python(*arguments: str, executable: str = sys.executable) -> list[str]:
    """Return the command line of a Python that imports what this one does, and nothing from the working folder.

    `python -m` and `python -c` look for modules in the working folder first, where anybody may have left a `numpy.py`.
    With -P they do not; PYTHONPATH holds for the child as for this process, unless this one is isolated (-I).

    Parameters
    ----------
    arguments
        What follows, such as "-m" and a module.
    executable
        The Python; by default the one that runs this.

    Returns
    -------
    list of str

    >>> child_python("-m", "pip", executable="python3")
    ['python3', '-P', '-m', 'pip']
    """
    return [executable, "-I" if sys.flags.isolated else "-P", *arguments]
