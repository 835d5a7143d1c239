"""Tables of cascades: what each is made of and how fast it is, and the thresholds that were tested."""

from compress import format_numbers as fmt
from compress.measure.result_base import Score
from compress.report.report_schema import Report
from compress.report.retention import larger_is_better
from compress.select.cascade_threshold import CascadeFacts
from compress.tables import Table, make_table


def cascade_table(report: Report, title: str) -> Table:
    """One row a cascade: its models, its threshold, the share that the first one answers, and its times."""
    results = {row.key: result.latency for row, result in report.rows_at(title)}
    return make_table(
        (
            {
                "cascade": key,
                "first": facts.first,
                "then": facts.then,
                "sure from": f"{facts.threshold:.4f}",
                "first answers on select": fmt.percent(facts.share),
                "on test": fmt.percent(facts.test_share),
                "mean": _shown(results[key].typical()),
                "p50": _shown(results[key].quantile("p50")),
                "p95": _shown(results[key].quantile("p95")),
            }
            for key, facts in report.cascades.items()
            if key in results
        ),
        names=3,
    )


def threshold_table(report: Report, title: str, facts: CascadeFacts) -> Table:
    """The thresholds that were tested for one cascade, the most cautious first, and the mean time with each."""
    larger = larger_is_better(report)
    times = [report.result(key, title) for key in (facts.first, facts.then)]
    first, then = (result.latency.typical() if result else None for result in times)

    def mean(share: float) -> float | None:
        return first.value + (1 - share) * then.value if first and then else None

    return make_table(
        (
            {
                "first answers": fmt.percent(point.share),
                "sure from": f"{point.threshold:.4f}",
                "loss on select": fmt.points(point.drop, larger),
                "outcome": point.outcome,
                "mean": fmt.milliseconds(mean(point.share)),
            }
            for point in facts.points
        ),
        names=1,
        left=("outcome",),
    )


def _shown(score: Score | None) -> str:
    return fmt.milliseconds(score.value if score else None)
