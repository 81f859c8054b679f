"""The mutations: each is still a change of the source, a fixed sample is noticed, a vacuous proof is reported."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.five_systems import all_rows
from tests.five_systems.mutants import Mutation, copy_of_the_tree, failing, judge, mutations, problems

VACUOUS = {
    *("habana-ssd-48", "habana-resnext101-1", "habana-resnext101-36", "nvidia-resnet50-14", "nvidia-resnet50-64"),
    *("nvidia-resnet50-75", "sc22-study-36", "sc22-study-40"),
}
"""Rows whose named tests once passed with the feature broken."""


def test_every_mutation_is_found_in_the_source_and_breaks_rows_of_the_tables() -> None:
    assert problems(mutations()) == []


def test_at_least_120_rows_are_covered_and_those_that_were_vacuous() -> None:
    covered = {row for mutation in mutations() for row in mutation.rows}
    assert len(covered) >= 120
    assert covered >= VACUOUS
    assert sum(mutation.quick for mutation in mutations()) >= 10


def test_a_text_that_is_gone_or_not_unique_says_what_to_change(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    twice = Mutation(file="a.py", find="x = 1", replace="x = 2", rows=("habana-ssd-48",))
    with pytest.raises(ValueError, match=r"2 times, not once. Change `find` in mutations.toml .* habana-ssd-48"):
        twice.apply(tmp_path)
    with pytest.raises(ValueError, match=r"b\.py does not exist \(moved\?\)"):
        replace(twice, file="b.py").apply(tmp_path)


@pytest.mark.slow
def test_the_sample_is_noticed_and_a_change_without_effect_is_not() -> None:
    rows = {row.key: row for row in all_rows()}
    sample = [mutation for mutation in mutations() if mutation.quick][:10]
    words = Mutation(
        file="src/vernier/lab/study/analysis.py",
        find='"""Tukey\'s fences:',
        replace='"""The fences of Tukey:',
        rows=("sc22-study-38",),
        only="by_hand",
    )
    with copy_of_the_tree() as root:
        assert failing(sample, root, rows) == []
        survived = {str(m): v.output for m in sample if (v := judge(m, root, rows)).survived}
        assert judge(words, root, rows).survived == ["sc22-study-38"]
    assert survived == {}
