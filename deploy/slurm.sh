#!/bin/sh
# Predict on Slurm, without any engine: sbatch --array=1-64 deploy/slurm.sh MODEL 'IN/*.parquet' OUT
#SBATCH --cpus-per-task=1 --mem=2G
set -eu
exec treelabel predict "$1" "$2" -o "$3" --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
