"""Shards as tasks of Spark: `spark-submit $(which treelabel) predict ... --spark`."""

from collections.abc import Iterator, Sequence

from treelabel.cluster.shards import ShardJob, ShardResult, run_shard
from treelabel.core.errors import require_extra


def run_on_spark(shards: Sequence[ShardJob]) -> Iterator[ShardResult]:
    """Run shards in the session of Spark that `spark-submit` made, or else in one of this machine.

    Every executor must have treelabel installed, and see the model, the input and the output under the same paths. A
    task whose executor died is run again by Spark.
    """
    if not shards:
        return
    with require_extra("spark", "--spark"):
        from pyspark.sql import SparkSession
    context = SparkSession.builder.appName("treelabel").getOrCreate().sparkContext
    yield from context.parallelize(list(shards), len(shards)).map(run_shard).toLocalIterator()
