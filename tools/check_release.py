"""Check what a release would publish: `make release-check`. Nothing is published.

    python tools/check_release.py                                           # this Python
    python tools/check_release.py --pythons python3.11 python3.12 python3.13

Builds sdist and wheel twice and compares their bytes, has twine and check-wheel-contents look at them, and runs the
main job from the installed wheel in new environments: with the newest dependencies on every Python, and with the lowest
on the oldest one. Then writes the list of what is installed there (SBOM, CycloneDX). All of it goes to dist/.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.check_clients import make_environment  # noqa: E402

TOOLS = ("build==1.6.1", "twine==7.0.0", "check-wheel-contents==0.6.3", "cyclonedx-bom==7.5.0", "uv==0.13.8")
EXTRAS = "report,excel"
SMOKE = """
import treelabel as tl
train, test = tl.split(tl.load_sample(), {"train": 0.8, "test": 0.2}, seed=0).values()
model = tl.fit(train, preset="fast")
assert tl.evaluate(test, scores=model.score(test), metrics=["hf1"])["hf1"] > 0.85
model.save("model")
assert tl.load_model("model").predict(["a terrier bred to hunt foxes"]) == [["terrier"]]
print("treelabel", tl.__version__)
"""


def run(*command: str | Path, folder: Path = ROOT, **variables: str) -> str:
    """Run a command, and return what it prints."""
    words = [Path(word).name if os.sep in str(word) and "\n" not in str(word) else str(word) for word in command]
    print("$", " ".join(word if "\n" not in word else "..." for word in words), flush=True)
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{done.stderr}\nended with {done.returncode}")
    return done.stdout


def build_twice(python: Path, output: Path) -> list[Path]:
    """Build sdist and wheel into a folder, and again elsewhere: the bytes must be the same."""
    moment = run("git", "log", "-1", "--format=%ct").strip()
    shutil.rmtree(output, ignore_errors=True)
    with tempfile.TemporaryDirectory() as other:
        for folder in (output, Path(other)):
            run(python, "-m", "build", "--outdir", folder, ROOT, SOURCE_DATE_EPOCH=moment)
        files = sorted(output.iterdir())
        for file in files:
            digests = {hashlib.sha256(each.read_bytes()).hexdigest() for each in (file, Path(other, file.name))}
            if len(digests) != 1:
                sys.exit(f"{file.name}: two builds differ")
            print(f"{file.name}: {file.stat().st_size:,} bytes, twice the same, sha256 {digests.pop()}")
    return files


def try_wheel(python: str, wheel: Path, lowest: Path | None = None) -> str:
    """Install the wheel into a new environment, run the main job, and return what is installed there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inner = folder / "environment" / "bin" / "python"
        run(python, "-m", "venv", "--without-pip", folder / "environment")
        limits = ["--constraint", str(lowest)] if lowest is not None else []
        # pip of the machine, as environments have none.
        base = str(getattr(sys, "_base_executable", sys.executable))
        pip: list[str | Path] = [base, "-m", "pip", "--disable-pip-version-check", "--python", inner]
        run(*pip, "install", "--quiet", *limits, f"{wheel}[{EXTRAS}]")
        # A folder of its own, so that nothing is imported but what is installed.
        clean = {"PYTHONPATH": "", "TREELABEL_CACHE": str(folder / "cache")}
        print(run(inner, "-c", SMOKE, folder=folder, **clean).strip())
        run(inner.with_name("treelabel"), "demo", folder=folder, **clean)
        return run(*pip, "freeze")


def main() -> None:
    """Check a release, and leave it in dist/."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", nargs="+", default=[sys.executable], help="oldest first")
    parser.add_argument("--tools", type=Path, default=ROOT / ".venv-release", help="environment of the tools")
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    python = make_environment(given.tools, TOOLS)
    programs = python.parent
    files = build_twice(python, given.output)
    (wheel,) = [file for file in files if file.suffix == ".whl"]
    run(programs / "twine", "check", "--strict", *files)
    run(programs / "check-wheel-contents", wheel)
    installed = [try_wheel(each, wheel) for each in given.pythons]
    with tempfile.TemporaryDirectory() as folder:
        lowest, newest = Path(folder, "lowest.txt"), Path(folder, "requirements.txt")
        extras = [word for extra in EXTRAS.split(",") for word in ("--extra", extra)]
        compiled = ["--quiet", "--resolution", "lowest-direct", "--python", given.pythons[0], "--output-file", lowest]
        run(programs / "uv", "pip", "compile", *compiled, *extras, ROOT / "pyproject.toml")
        try_wheel(given.pythons[0], wheel, lowest)
        newest.write_text("".join(line + "\n" for line in installed[-1].splitlines() if "==" in line), encoding="utf-8")
        run(
            programs / "cyclonedx-py",
            "requirements",
            newest,
            "--pyproject",
            ROOT / "pyproject.toml",
            "--output-reproducible",
            "--output-file",
            given.output / "treelabel.cdx.json",
        )
    print(f"{', '.join(file.name for file in files)} may be published; treelabel.cdx.json lists what they need")


if __name__ == "__main__":
    main()
