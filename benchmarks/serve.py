"""The service against a bare FastAPI handler around the same model and against Annif; a soak; kills while it writes.

    python benchmarks/serve.py --annif ENV/bin/annif     # all parts; some five minutes on two cores
    python benchmarks/serve.py --part speed              # or soak, or kills

Speed: the sample's default model is served by `treelabel serve`, by a FastAPI handler of three lines around
`model.predict`, and, where `--annif` names the program, by Annif (tfidf, the same training documents). One client of
asyncio streams with connections that stay open sends each the same texts, in turns: single texts by 1 and by 16
connections, and batches of 32 (Annif's most) by 4. Ours answers with paths, probabilities and those of all ancestors,
the bare handler with names alone. The best of 15 rounds counts. Claims: at least 90% of the bare
handler's texts a second in batches, and at least 5 times Annif's. The time of all processors that a server took for a
text, over all rounds, is shown too: on a busy machine, who has more threads gets more of it.

Soak: 60 seconds, 64 connections, a tenth of them slow, malformed or cut off. Claims: no 5xx, and memory at the end
within 5% of that after 20 seconds.

Kills: corrections are sent while the process is killed with SIGKILL, 20 times. Claim: each correction that was answered
with 200 is in the journal.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Claim, report

from treelabel import load_sample, make_model

HOST = "127.0.0.1"
BATCH = 32
LEAST_OF_BARE, LEAST_OF_ANNIF = 0.9, 5.0
SOAK_SECONDS, WARM_SECONDS, CONNECTIONS, KILLS = 60, 20, 64, 20
MOST_GROWTH = 1.05

BARE = """
import sys, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from treelabel import load_model
model = load_model(sys.argv[1])
app = FastAPI()
class Texts(BaseModel):
    texts: list[str]
@app.post("/predict")
def predict(body: Texts) -> list[list[str]]:
    return [[str(label)] for label in model.predict(body.texts)]
uvicorn.run(app, port=int(sys.argv[2]), log_level="warning")
"""
ANNIF = """[sample]
name=sample
language=en
backend=tfidf
vocab=nouns
analyzer=simple
limit=10
"""


@dataclass(frozen=True)
class Server:
    """A process that listens: its name, port, and the request for some texts."""

    name: str
    port: int
    request: Callable[[list[str]], bytes]
    process: "subprocess.Popen[bytes]"


def http_request(path: str, body: bytes, kind: str = "application/json") -> bytes:
    """Write a POST request as the bytes that go over the wire."""
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def json_request(path: str, value: object) -> bytes:
    """Write a POST request with JSON."""
    return http_request(path, json.dumps(value).encode())


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read one answer: its status and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
    return status, await reader.readexactly(int(length.partition(b":")[2]))


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextmanager
def started(
    command: list[str], port: int, folder: Path, wait: float = 90, environment: dict[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a server, wait until it listens, and end it afterwards."""
    with (folder / f"{port}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment)
    try:
        until = time.monotonic() + wait
        while process.poll() is None and time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex((HOST, port)) == 0:
                    break
            time.sleep(0.02)
        else:
            raise SystemExit(f"{command[0]} does not listen: {(folder / f'{port}.log').read_text()[-2000:]}")
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def service_command(model: Path, port: int, *options: str) -> list[str]:
    """Return the command line of our service."""
    return [sys.executable, "-m", "treelabel", "serve", str(model), "--port", str(port), *options]


# Speed


async def send_all(server: Server, requests: list[bytes], connections: int) -> list[float]:
    """Send requests over some connections, one after another on each; return the seconds of each."""
    waiting, times = iter(requests), []

    async def work() -> None:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        for request in waiting:
            start = time.perf_counter()
            writer.write(request)
            status, body = await answer_of(reader)
            times.append(time.perf_counter() - start)
            if status != 200:
                raise SystemExit(f"{server.name} answered {status}: {body[:300]!r}")
        writer.close()

    await asyncio.gather(*(work() for _ in range(connections)))
    return times


def measure(
    servers: list[Server], texts: list[str], size: int, connections: int, rounds: int
) -> dict[str, list[float]]:
    """Return for each server texts a second, and the median and 99th percentile of milliseconds, of its best round.

    Servers take turns, so that what else the machine does slows down all alike.
    """
    rows: dict[str, list[list[float]]] = {server.name: [] for server in servers}
    used_by = dict.fromkeys(rows, 0.0)
    parts = [texts[start : start + size] for start in range(0, len(texts), size)]
    for turn in range(rounds + 1):
        for server in servers:
            requests = [server.request(part) for part in parts]
            used, start = cpu_seconds(server), time.perf_counter()
            times = sorted(asyncio.run(send_all(server, requests, connections)))
            took = time.perf_counter() - start
            if turn:  # the first is to warm up
                percentiles = times[len(times) // 2], times[int(len(times) * 0.99)]
                rows[server.name].append([len(texts) / took, *(1000 * each for each in percentiles)])
                used_by[server.name] += cpu_seconds(server) - used
    return {name: [*max(each), 1e6 * used_by[name] / (rounds * len(texts))] for name, each in rows.items()}


def cpu_seconds(server: Server) -> float:
    """Return the processor time that a server has used so far."""
    times = psutil.Process(server.process.pid).cpu_times()
    return float(times.user + times.system)


def annif_environment(folder: Path) -> dict[str, str]:
    """Return the environment of Annif: its own packages, and a folder of NLTK's data."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "NLTK_DATA": str(folder / "nltk")
    }


def prepare_annif(annif: Path, folder: Path) -> None:
    """Make a vocabulary and a project of the sample, and train it."""
    data = load_sample()
    h = data.hierarchy
    uris = [f"http://example.org/{node}" for node in range(len(h))]
    (folder / "projects.cfg").write_text(ANNIF)
    # What NLTK would download to split sentences: empty tables, as tf-idf counts words.
    tables = folder / "nltk" / "tokenizers" / "punkt_tab" / "english"
    tables.mkdir(parents=True)
    for name in ("collocations.tab", "sent_starters.txt", "abbrev_types.txt", "ortho_context.tab"):
        (tables / name).touch()
    (folder / "nouns.tsv").write_text("".join(f"<{uri}>\t{name}\n" for uri, name in zip(uris, h.names, strict=True)))
    labels = data.labels.tocsr()
    rows = [
        f"{' '.join(text.split())}\t" + " ".join(f"<{uris[node]}>" for node in labels[[row]].indices) + "\n"
        for row, text in enumerate(data.texts)
    ]
    (folder / "train.tsv").write_text("".join(rows))
    for arguments in (["load-vocab", "nouns", "--language", "en", "nouns.tsv"], ["train", "sample", "train.tsv"]):
        subprocess.run(
            [str(annif), *arguments], cwd=folder, check=True, capture_output=True, env=annif_environment(folder)
        )


@contextmanager
def servers_of(model: Path, folder: Path, annif: Path | None) -> Iterator[list[Server]]:
    """Start all servers."""
    ours, bare, theirs = free_port(), free_port(), free_port()
    path = f"/v1/models/{model.name}/predict"
    bare_command = [sys.executable, "-c", BARE, str(model), str(bare)]
    with started(service_command(model, ours), ours, folder) as one, started(bare_command, bare, folder) as two:
        servers = [Server("treelabel", ours, lambda part: json_request(path, {"texts": part}), one)]
        servers += [Server("bare FastAPI", bare, lambda part: json_request("/predict", {"texts": part}), two)]
        if annif is None:
            yield servers
            return
        prepare_annif(annif, folder)
        command = [str(annif.with_name("uvicorn")), "annif:create_app", "--factory", "--port", str(theirs)]
        command += ["--log-level", "warning"]
        with started(command, theirs, folder, environment=annif_environment(folder)) as three:

            def ask(part: list[str]) -> bytes:
                if len(part) == 1:
                    form = urlencode({"text": part[0]}).encode()
                    return http_request("/v1/projects/sample/suggest", form, "application/x-www-form-urlencoded")
                return json_request(
                    "/v1/projects/sample/suggest-batch", {"documents": [{"text": text} for text in part]}
                )

            yield [*servers, Server("Annif", theirs, ask, three)]


def speed(model: Path, folder: Path, annif: Path | None, count: int) -> list[Claim]:
    """Compare the servers."""
    texts = [str(text) for text in load_sample().texts[:count]]
    claims = []
    with servers_of(model, folder, annif) as servers:
        for what, size, connections, some in (
            ("single texts, 1 connection", 1, 1, texts[: count // 8]),
            ("single texts, 16 connections", 1, 16, texts[: count // 2]),
            (f"batches of {BATCH}, 4 connections", BATCH, 4, texts),
        ):
            rates = measure(servers, some, size, connections, rounds=15)
            ours = rates.pop("treelabel")
            for name, peer in rates.items():
                least = {"bare FastAPI": LEAST_OF_BARE, "Annif": LEAST_OF_ANNIF}[name]
                is_required = size > 1 or name == "Annif"
                ratio = ours[0] / peer[0]
                claims.append(
                    Claim(
                        what,
                        _rate(ours),
                        f"{name} {_rate(peer)}",
                        ratio,
                        f">= {least:g}x" if is_required else "",
                        ratio >= least if is_required else None,
                    )
                )
    return claims


def _rate(values: list[float]) -> str:
    return f"{values[0]:,.0f} texts/s, p50 {values[1]:.1f} ms, p99 {values[2]:.1f} ms, CPU {values[3]:,.0f} µs"


# Soak


def soak(model: Path, folder: Path, seconds: float) -> list[Claim]:
    """Load the service for a while with good and bad requests."""
    port = free_port()
    texts = [str(text) for text in load_sample().texts]
    with started(service_command(model, port), port, folder) as process:
        run = Soak(port, f"/v1/models/{model.name}/predict", texts, time.monotonic() + seconds, Counter())
        memory, statuses = asyncio.run(run.run(process.pid)), run.statuses
    wrong = sum(count for status, count in statuses.items() if status >= 500)
    growth = memory[-1] / memory[0]
    shown = ", ".join(f"{status or 'none'}: {count:,}" for status, count in sorted(statuses.items()))
    return [
        Claim(f"soak, {sum(statuses.values()):,} requests by status", shown, required="no 5xx", kept=wrong == 0),
        Claim(
            "memory after the soak, and after warming up",
            f"{memory[-1]:,.0f} MB",
            f"{memory[0]:,.0f} MB",
            growth,
            f"<= {MOST_GROWTH}x",
            growth <= MOST_GROWTH,
        ),
    ]


@dataclass(frozen=True)
class Soak:
    """One soak: where requests go, until when, and what was answered."""

    port: int
    path: str
    texts: list[str]
    end: float
    statuses: Counter[int]

    async def run(self, process: int) -> list[float]:
        """Send requests over all connections; return the megabytes of the process, second by second."""
        tenth = CONNECTIONS // 10
        work = [self._repeat(self._bad if index < tenth else self._good, index) for index in range(CONNECTIONS)]
        memory, *_ = await asyncio.gather(self._watch(process), *work)
        return memory or []

    async def _watch(self, process: int) -> list[float]:
        memory = []
        await asyncio.sleep(min(WARM_SECONDS, (self.end - time.monotonic()) / 3))
        while time.monotonic() < self.end:
            memory.append(psutil.Process(process).memory_info().rss / 1e6)
            await asyncio.sleep(1)
        return memory

    async def _repeat(self, work: Callable[[random.Random], Awaitable[None]], seed: int) -> None:
        numbers = random.Random(seed)
        while time.monotonic() < self.end:
            try:
                await work(numbers)
            except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError):
                self.statuses[0] += 1

    async def _good(self, numbers: random.Random) -> None:
        reader, writer = await asyncio.open_connection(HOST, self.port)
        while time.monotonic() < self.end:
            some = numbers.sample(self.texts, numbers.choice((1, 1, 1, 8, 32)))
            writer.write(json_request(self.path, {"texts": some}))
            self.statuses[(await answer_of(reader))[0]] += 1
        writer.close()

    async def _bad(self, numbers: random.Random) -> None:
        """Send a request slowly, or nonsense, or half of one."""
        request = json_request(self.path, {"text": numbers.choice(self.texts)})
        how = numbers.choice(("slow", "malformed", "json", "cut"))
        reader, writer = await asyncio.open_connection(HOST, self.port)
        try:
            if how == "cut":
                writer.write(request[: numbers.randrange(1, len(request))])
                await asyncio.sleep(0.05)
                return
            if how == "slow":
                for start in range(0, len(request), 40):
                    writer.write(request[start : start + 40])
                    await asyncio.sleep(0.1)
            else:
                nonsense = numbers.randbytes(200)
                writer.write(nonsense + b"\r\n\r\n" if how == "malformed" else http_request(self.path, nonsense))
            async with asyncio.timeout(10):
                self.statuses[(await answer_of(reader))[0]] += 1
        finally:
            writer.close()


# Kills


def kills(model: Path, folder: Path, times: int) -> list[Claim]:
    """Kill the service while it accepts corrections, and look for each accepted one in the journal."""
    state = folder / "state"
    accepted: set[str] = set()
    numbers = random.Random(0)
    for turn in range(times):
        port = free_port()
        options = ("--learn", "--state", str(state))
        with started(service_command(model, port, *options), port, folder) as process:
            accepted |= asyncio.run(_correct(port, model.name, turn, process, numbers.uniform(0.1, 0.8)))
    port = free_port()
    with started(service_command(model, port, "--learn", "--state", str(state)), port, folder):
        asyncio.run(_correct_once(port, model.name, "last"))
    lines = (state / model.name / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    known = [json.loads(line)["id"] for line in lines]
    lost = accepted - set(known)
    what = f"corrections accepted in {times} runs that ended with kill -9"
    twice = len(known) - len(set(known))
    return [Claim(what, f"{len(accepted):,}", f"{len(lost)} lost, {twice} twice", required="0 lost", kept=not lost)]


async def _correct_once(port: int, model: str, name: str) -> int:
    reader, writer = await asyncio.open_connection(HOST, port)
    correction = {"id": name, "text": f"text {name} " * 20, "labels": ["animal"]}
    writer.write(json_request(f"/v1/models/{model}/feedback", {"corrections": [correction]}))
    status, _ = await answer_of(reader)
    writer.close()
    return status


async def _correct(port: int, model: str, turn: int, process: "subprocess.Popen[bytes]", seconds: float) -> set[str]:
    accepted: set[str] = set()

    async def work(connection: int) -> None:
        count = 0
        while True:
            name = f"{turn}-{connection}-{count}"
            count += 1
            try:
                if await _correct_once(port, model, name) == 200:
                    accepted.add(name)
            except (OSError, asyncio.IncompleteReadError):
                return

    tasks = [asyncio.create_task(work(connection)) for connection in range(8)]
    await asyncio.sleep(seconds)
    os.kill(process.pid, signal.SIGKILL)
    await asyncio.gather(*tasks)
    return accepted


def main() -> int:
    """Run the parts, and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--annif", type=Path, help="the program of an environment with Annif 1.4")
    parser.add_argument("--part", choices=("speed", "soak", "kills"), help="by default all")
    parser.add_argument("--texts", type=int, default=1600, help="texts of a round")
    parser.add_argument("--seconds", type=float, default=SOAK_SECONDS, help="of the soak")
    parser.add_argument("--kills", type=int, default=KILLS)
    chosen = parser.parse_args()
    claims: list[Claim] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "nouns"
        make_model("linear").fit(load_sample(), progress=False).save(model)
        if chosen.part in (None, "speed"):
            claims += speed(model, folder, chosen.annif, chosen.texts)
        if chosen.part in (None, "soak"):
            claims += soak(model, folder, chosen.seconds)
        if chosen.part in (None, "kills"):
            claims += kills(model, folder, chosen.kills)
    return 0 if report("The service", claims) else 1


if __name__ == "__main__":
    sys.exit(main())
