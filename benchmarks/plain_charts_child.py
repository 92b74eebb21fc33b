"""The charts that people draw of sysbench's text, in plain Python: regular expression, lists, matplotlib.

The other side of ``read_sysbench``: ``FOLDER FILE FILE`` reads two files and leaves twelve PNGs in the folder: TPS over
time of each file and of both, from zero and from the data's range; histogram, box, density, bell curve, histogram with
either, variance with its factor, and box with its outliers as points.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.read_sysbench_child import read_plain

COLOURS = ("tab:blue", "tab:orange")
HOUR = 3600.0
Sides = dict[str, tuple[Any, Any]]  # name → times in s, TPS


def main() -> None:
    folder = Path(sys.argv[1])
    sides: Sides = {}
    for name in sys.argv[2:]:
        columns = read_plain(Path(name))
        sides[Path(name).stem] = np.array(columns[0]), np.array(columns[2])
    for name, side in sides.items():
        chart(folder / f"{name}.png", partial(over_time, sides={name: side}, zero=False))
    chart(folder / "both-from-zero.png", partial(over_time, sides=sides, zero=True))
    chart(folder / "both.png", partial(over_time, sides=sides, zero=False))
    for draws in ((histogram,), (box,), (density,), (bell,), (histogram, bell), (histogram, density)):
        chart(
            folder / f"{'-'.join(draw.__name__ for draw in draws)}.png", *(partial(draw, sides=sides) for draw in draws)
        )
    chart(folder / "variance.png", partial(variance, sides=sides))
    chart(folder / "outliers.png", partial(outliers, sides=sides))


def chart(path: Path, *draws: Callable[[Any], None]) -> None:
    figure, axes = plt.subplots(figsize=(12, 6))
    for draw in draws:
        draw(axes)
    axes.grid(visible=True)
    figure.savefig(path)
    plt.close(figure)


def over_time(axes: Any, sides: Sides, *, zero: bool) -> None:
    for (name, (t, tps)), colour in zip(sides.items(), COLOURS, strict=False):
        long = t[-1] > 2 * HOUR
        axes.plot(t / HOUR if long else t, tps, linewidth=0.8, color=colour, label=name)
        axes.set_xlabel("hours" if long else "seconds")
    axes.set_ylabel("TPS")
    axes.legend()
    if zero:
        axes.set_ylim(bottom=0)


def edges(sides: Sides) -> Any:
    everything = [tps for _, tps in sides.values()]
    return np.linspace(min(tps.min() for tps in everything), max(tps.max() for tps in everything), 30)


def histogram(axes: Any, sides: Sides) -> None:
    for (name, (_, tps)), colour in zip(sides.items(), COLOURS, strict=True):
        axes.hist(tps, edges(sides), density=True, alpha=0.5, color=colour, label=name)
    axes.legend()


def density(axes: Any, sides: Sides) -> None:
    at = np.linspace(edges(sides)[0], edges(sides)[-1], 200)
    for (name, (_, tps)), colour in zip(sides.items(), COLOURS, strict=True):
        width = 1.06 * tps.std() * len(tps) ** -0.2
        near = np.exp(-0.5 * ((at[:, None] - tps) / width) ** 2)
        axes.plot(at, near.sum(axis=1) / (len(tps) * width * np.sqrt(2 * np.pi)), color=colour, label=name)
    axes.legend()


def bell(axes: Any, sides: Sides) -> None:
    for (name, (_, tps)), colour in zip(sides.items(), COLOURS, strict=True):
        mean, sigma = tps.mean(), tps.std()
        at = np.linspace(mean - 3 * sigma, mean + 3 * sigma, 100)
        curve = np.exp(-0.5 * ((at - mean) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
        axes.plot(at, curve, color=colour, label=f"{name}: μ {mean:.1f}, σ {sigma:.1f}")
        for place in (mean - sigma, mean, mean + sigma):
            axes.axvline(place, color=colour, linestyle="dotted")
    axes.legend()


def box(axes: Any, sides: Sides) -> None:
    axes.boxplot([tps for _, tps in sides.values()], tick_labels=list(sides))


def variance(axes: Any, sides: Sides) -> None:
    variances = [float(tps.var()) for _, tps in sides.values()]
    axes.bar(list(sides), variances, color=COLOURS)
    axes.set_title(f"variance factor {max(variances) / min(variances):.2f}")


def outliers(axes: Any, sides: Sides) -> None:
    axes.boxplot([tps for _, tps in sides.values()], tick_labels=list(sides), showfliers=False)
    draw = np.random.default_rng(1)
    for at, (_, tps) in enumerate(sides.values(), start=1):
        low, high = np.percentile(tps, [25, 75])
        outside = tps[(tps < low - 1.5 * (high - low)) | (tps > high + 1.5 * (high - low))]
        axes.plot(at + draw.uniform(-0.1, 0.1, len(outside)), outside, "o", markersize=3, alpha=0.5)


if __name__ == "__main__":
    main()
