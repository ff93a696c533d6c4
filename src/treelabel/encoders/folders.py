"""The folders on this machine that hold encoders and caches."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder of embeddings and exported graphs: TREELABEL_CACHE, or treelabel in the user's cache folder."""
    given = os.environ.get("TREELABEL_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or home_folder() / ".cache") / "treelabel"


def home_folder() -> Path:
    """Return the user's home; for a user without one, a path that does not exist and cannot be created."""
    try:
        return Path.home()
    except RuntimeError:
        return Path(os.devnull)


def encoder_folders() -> list[Path]:
    """Return the folders whose subfolders are encoders: those in TREELABEL_ENCODERS, then one beside the cache."""
    listed = os.environ.get("TREELABEL_ENCODERS", "").split(os.pathsep)
    return [*(Path(folder) for folder in listed if folder), cache_folder() / "encoders"]


def hub_folder() -> Path:
    """Return the folder of what was downloaded from the Hugging Face hub."""
    home = Path(os.environ.get("HF_HOME") or home_folder() / ".cache" / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
