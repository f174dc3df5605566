"""What was measured: one figure a run, told as the median of all runs with its range.

A ratio is taken within a run and then goes through the same median, so that it compares what ran side by side.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

RATIO: Final = "ratio_to_"


class Result(Struct, frozen=True, kw_only=True):
    """One figure of one run. `ratios` are by what stands below the line (`raw_consume`), `details` whatever explains it,
    `settings` what it was measured at."""

    name: str
    value: float
    unit: str
    ratios: Mapping[str, float] = {}
    details: Mapping[str, float] = {}
    settings: Mapping[str, float] = {}


class Summary(Struct, frozen=True, kw_only=True):
    """One figure over all runs: medians, and the range of the value."""

    name: str
    unit: str
    values: tuple[float, ...]
    ratios: Mapping[str, float]
    details: Mapping[str, float]
    settings: Mapping[str, float]

    @property
    def value(self) -> float:
        return statistics.median(self.values)


def ratio(value: float, to: float | None) -> float | None:
    """None where there is nothing to compare with."""
    return None if to is None or to == 0 else value / to


def ratios(value: float, **to: float | None) -> dict[str, float]:
    """`value` over each of those that were measured."""
    return {name: found for name, base in to.items() if (found := ratio(value, base)) is not None}


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile. `values` in any order, at least one."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[int(rank) - 1]


def summarise(runs: Iterable[Iterable[Result]]) -> list[Summary]:
    """One summary a name, in the order of first appearance."""
    gathered: dict[str, list[Result]] = {}
    for run in runs:
        for result in run:
            gathered.setdefault(result.name, []).append(result)
    return [
        Summary(
            name=name,
            unit=results[0].unit,
            values=tuple(result.value for result in results),
            ratios=_medians([result.ratios for result in results]),
            details=_medians([result.details for result in results]),
            settings=results[0].settings,
        )
        for name, results in gathered.items()
    ]


def report(summaries: Iterable[Summary]) -> dict[str, list[dict[str, object]]]:
    """What goes into the file: `{"results": [{"name", "value", "unit", "runs", "min", "max", "ratio_to_..", ..}]}`.

    Settings stand as they are, all else rounded.
    """
    return {
        "results": [
            {
                "name": each.name,
                "value": _rounded(each.value),
                "unit": each.unit,
                "runs": len(each.values),
                "min": _rounded(min(each.values)),
                "max": _rounded(max(each.values)),
                **{f"{RATIO}{name}": _rounded(value) for name, value in each.ratios.items()},
                **{name: _rounded(value) for name, value in each.details.items()},
                **each.settings,
            }
            for each in summaries
        ]
    }


def write(path: Path, summaries: Iterable[Summary]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report(summaries)), indent=2) + b"\n")


def table(summaries: Sequence[Summary]) -> str:
    """Aligned text: name, median, range, unit, ratios; the details on a line below."""
    rows = [("measure", "median", "min .. max", "unit", "ratios")]
    for each in summaries:
        span = f"{_text(min(each.values))} .. {_text(max(each.values))}" if len(each.values) > 1 else ""
        compared = "  ".join(f"{_text(value)} x {name}" for name, value in each.ratios.items())
        rows.append((each.name, _text(each.value), span, each.unit, compared))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = []
    for index, (name, value, span, unit, compared) in enumerate(rows):
        aligned = f"{name:<{widths[0]}}  {value:>{widths[1]}}  {span:>{widths[2]}}  {unit:<{widths[3]}}  {compared}"
        lines.append(aligned.rstrip())
        details = summaries[index - 1].details if index else {}
        if details:
            lines.append("    " + "  ".join(f"{key} {_text(number)}" for key, number in details.items()))
    return "\n".join(lines)


def _medians(of: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for each in of for name in each)
    return {name: statistics.median([each[name] for each in of if name in each]) for name in names}


def _rounded(value: float) -> float:
    """Four significant digits: more would claim what no run repeats."""
    return float(f"{value:.4g}")


def _text(value: float) -> str:
    rounded = _rounded(value)
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"
