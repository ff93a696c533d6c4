"""Shards as tasks of Spark: `spark-submit deploy/spark_main.py predict ... --spark`."""

import logging
import os
import sys
from collections.abc import Iterator, Sequence

from treelabel.cluster.shards import ShardJob, ShardResult, run_shard_in_worker
from treelabel.core.errors import require_extra

_log = logging.getLogger(__name__)


def run_on_spark(shards: Sequence[ShardJob]) -> Iterator[ShardResult]:
    """Run shards in the session of Spark that `spark-submit` made, or else in one of this machine.

    Every executor must have treelabel installed, and see the model, the input and the output under the same paths. A
    task whose executor died is run again by Spark; where Spark gives up, the shards that are missing are run once more.
    All tasks run at once, and their results come when the last one has ended.

    Parameters
    ----------
    shards
        What to work on.

    Yields
    ------
    ShardResult
    """
    if not shards:
        return
    with require_extra("spark", "--spark"):
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    # Workers of a session of our own run this Python, and not any python3; spark-submit knows its own.
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    context = SparkSession.builder.appName("treelabel").getOrCreate().sparkContext
    try:
        yield from context.parallelize(list(shards), len(shards)).map(run_shard_in_worker).collect()
    except (Py4JError, PySparkException) as error:
        _log.warning("Spark gave up: %s", " ".join(str(error).split())[:300])
