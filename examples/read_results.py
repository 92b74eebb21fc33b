"""What a run measured, as Polars frames. `python read_results.py RUN`."""

import sys

import polars as pl

import storlab
from storlab.measurements import merge_histograms

run = storlab.open_run(sys.argv[1])
print(run.manifest.title, run.manifest.seed)

# One row a round and level: all jobs and all nodes together have no name there.
factors = [column for column in run.trials.columns if column.startswith("factor.")]
whole = run.metrics.filter(pl.col("node").is_null(), pl.col("job").is_null(), ~pl.col("source").str.contains(":"))
iops = whole.filter(pl.col("metric") == "iops").join(run.trials.select("trial", *factors), on="trial")
print(iops.pivot(on=factors, index="round", values="value", aggregate_function="mean").sort("round"))

# A latency histogram of all rounds: bins are the same everywhere, so counts add up.
bins = run.histograms.filter(pl.col("metric") == "latency", pl.col("job").is_null())
print(merge_histograms(bins, by=["cell"]))

# A time series of the first trial.
first = run.series.filter(pl.col("trial") == 1, pl.col("metric") == "bandwidth", pl.col("job").is_null())
print(first.select("t", "value"))
