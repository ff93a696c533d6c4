#!/bin/sh
# Predict on Spark: sh deploy/spark-submit.sh MODEL 'IN/*.parquet' OUT [options of treelabel predict]
# Executors run the Python of PYSPARK_PYTHON, which must have treelabel; MODEL, IN and OUT must be visible to all.
set -eu
model=$1 input=$2 output=$3
shift 3
: "${MASTER:=local[2]}" "${PYSPARK_PYTHON:=$(command -v python3)}"
export PYSPARK_PYTHON
exec spark-submit --master "$MASTER" --conf spark.task.maxFailures=8 --conf spark.executorEnv.TREELABEL_THREADS=1 \
    "$(dirname "$0")/spark_main.py" predict "$model" "$input" -o "$output" --spark "$@"
