"""Precision, recall and F1 by class, balanced accuracy, and calibration, from the counts of an evaluation.

Definitions are scikit-learn's, but for what has nothing to divide by: it is left out instead of counted as 0.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from vernier.records.run import ClassQuality, Quality
from vernier.wording import plural

_MOST_CLASSES = 100
"""More would make every evaluation in events.jsonl large."""


def judge(classes: Sequence[str], confusion: Mapping[tuple[int, int], int], bins: Sequence[float]) -> Quality:
    """`confusion` counts images by (true, predicted) class; `bins` has counts, sums of scores, and correct ones."""
    samples, predicted = Counter[int](), Counter[int]()
    for (truth, taken_for), count in confusion.items():
        samples[truth] += count
        predicted[taken_for] += count
    by_class = []
    for number, name in enumerate(classes):
        correct, n, taken = confusion.get((number, number), 0), samples[number], predicted[number]
        by_class.append(
            ClassQuality(
                name=name,
                samples=n,
                predicted=taken,
                precision=correct / taken if taken else None,
                recall=correct / n if n else None,
                f1=2 * correct / (n + taken) if n + taken else None,
            )
        )
    third = len(bins) // 3
    rows = [
        (round(count), score / count, correct / count)
        for count, score, correct in zip(bins[:third], bins[third : 2 * third], bins[2 * third :], strict=True)
        if count
    ]
    total = sum(count for count, _, _ in rows)
    return Quality(
        balanced_accuracy=_mean([each.recall for each in by_class]),
        macro_f1=_mean([each.f1 for each in by_class]),
        ece=sum(count * abs(score - right) for count, score, right in rows) / total if total else None,
        reliability=tuple(rows),
        classes=tuple(by_class) if len(by_class) <= _MOST_CLASSES else (),
    )


def lines(quality: Quality, most: int) -> list[str]:
    """The same for a terminal; of many classes the weakest ones."""
    totals = {"balanced accuracy": quality.balanced_accuracy, "macro F1": quality.macro_f1, "ECE": quality.ece}
    classes = sorted(quality.classes, key=lambda each: each.f1 or 0.0)
    head = [f"the {most} weakest of {len(classes)} classes:"] if len(classes) > most else []
    rows = [
        f"  {each.name:<20} {_text('precision', each.precision)}  {_text('recall', each.recall)}  "
        f"{_text('F1', each.f1)}  {plural(each.samples, 'image')}"
        for each in classes[:most]
    ]
    return ["  ".join(_text(name, value) for name, value in totals.items()), *head, *rows]


def _text(name: str, value: float | None) -> str:
    return f"{name} {'-' if value is None else format(value, '.3f')}"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
