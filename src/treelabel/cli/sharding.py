"""Options of commands that share their files, or their work, between processes and machines."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from treelabel.cli import options as o
from treelabel.cli.printing import print_note, print_result
from treelabel.core.errors import TreelabelError

if TYPE_CHECKING:
    from treelabel.cluster.shards import Engine
    from treelabel.operations.bulk import FileJob

ShardOption = Annotated[
    str | None,
    typer.Option(
        metavar="I/N", help="Work on the I-th of N shares of the input files; OUTPUT is a folder with a part for each."
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Share the input files between the nodes of Ray: auto, or an address."),
]
SparkOption = Annotated[
    bool, typer.Option("--spark", help="Share the input files between the executors of Spark (spark-submit).")
]
STANDARD = Path("-")


class Sharding(NamedTuple):
    """Where the files of an input are worked on, each a shard: here, by Ray or by Spark."""

    share: tuple[int, int] | None
    cluster: str | None
    spark: bool

    @classmethod
    def of(cls, shard: str | None, cluster: str | None, spark: bool = False) -> "Sharding | None":
        """Read the options; None where there are none."""
        if sum((shard is not None, cluster is not None, spark)) > 1:
            raise TreelabelError("--shard, --cluster and --spark exclude each other: choose one")
        if shard is None and cluster is None and not spark:
            return None
        from treelabel.cluster.shards import parse_share

        return cls(None if shard is None else parse_share(shard), cluster, spark)

    def run(self, job: "FileJob", read: o.ReadArguments, ending: str, json: bool) -> None:
        """Work on all files, and report what has become of them."""
        from treelabel.cluster.shards import plan_shards, refuse_failures, run_shards
        from treelabel.core.progress import progress_bar
        from treelabel.data.io.tables import data_files, existing_data

        if STANDARD in (job.texts, job.output) or job.output.is_file():
            raise TreelabelError("shards are files, and their parts go to a folder: give a pattern, and -o FOLDER")
        job.scorer.check()
        if job.verb == "predict" and job.scorer.decides_on_all:
            raise TreelabelError(
                f"the rule {job.scorer.rule} decides on all documents together, and a shard has only some: write "
                "scores with treelabel score, and let treelabel decide take them all"
            )
        sources = data_files(existing_data(job.texts))
        # Read as the first one is: to look into each would take long.
        reading = read.like(job.model).batch_options(sources[0])
        jobs = {source: replace(job, texts=source.absolute(), reading=reading) for source in sources}
        shards = plan_shards(jobs, job.output.absolute(), ending, self.share)
        if not shards:
            print_note(f"nothing to do: {len(sources):,} files have no share {self.share}")
            return
        with progress_bar("shards", len(shards)) as report, self.engine() as engine:
            summary = run_shards(shards, engine, report, self.share)
        print_result(summary.to_json(), f"{job.output}: {summary}", json)
        refuse_failures(summary, job.output)

    def engine(self) -> "AbstractContextManager[Engine]":
        """Return what runs shards, connected while the block lasts."""
        from treelabel.cluster.shards import run_here

        if self.cluster is not None:
            from treelabel.cluster.ray_engine import ray_engine

            return ray_engine(self.cluster)
        if self.spark:
            from treelabel.cluster.spark_engine import run_on_spark

            return nullcontext(run_on_spark)
        return nullcontext(run_here)
