"""Names that were changed before the first release, for "did you mean" where no similarity would find the new one."""

from typing import Final

# Old name to new name, of settings and of anything that is looked up by name.
RENAMED: Final[dict[str, str]] = {}
