#!/bin/sh
#SBATCH --array=1-3 --exclusive --no-requeue --output=slurm-%A_%a.log
# Each task does four rounds of the run that `storlab plan STUDY --rounds 12 --write plan` has planned.
first=$((4 * SLURM_ARRAY_TASK_ID - 3))
exec storlab run --rounds "$first-$((first + 3))" --of plan --quiet --out "parts/$SLURM_ARRAY_TASK_ID-$SLURM_JOB_ID"
