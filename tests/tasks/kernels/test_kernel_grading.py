"""Grading a kernel: the baseline scores 0, the expert 1, and whatever is wrong is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forkgym import tasks
from forkgym.tasks.base import Verdict
from forkgym.tasks.conformance import check
from forkgym.tasks.workspace import Bases

Graded = Callable[..., Verdict]
KERN = "void kern(const float* x, float* out, int n) "


def failed(verdict: Verdict) -> tuple[str, str]:
    """The first test that did not pass, and what it says."""
    finding = next(finding for finding in verdict.findings if not finding.passed)
    return finding.id, finding.message


def test_baseline_scores_nothing_and_is_not_faster_than_itself(graded: Graded) -> None:
    verdict = graded(None)
    assert verdict.error is None
    assert (verdict.score, verdict.hacks, failed(verdict)[0]) == (0.0, (), "faster")
    assert verdict.components["correct"] == 1.0
    assert verdict.components["speedup"] == 1.0


def test_expert_solves_the_task(graded: Graded, fast: str) -> None:
    verdict = graded(fast)
    assert (verdict.error, verdict.score, verdict.resolved, verdict.stage) == (None, 1.0, True, "resolved")
    parts = verdict.components
    assert parts["ci_low"] <= parts["speedup"] <= parts["ci_high"]
    assert parts["speedup"] > 5
    assert 0.95 <= parts["expert_ratio"] < 1.2


def test_half_way_is_between(graded: Graded, slow: str) -> None:
    """Four windows at once: faster than one after the other, far from a running sum."""
    text = """\
void kern(const float* x, float* out, int n) {
    for (int i = 0; i < n; i++) {
        double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        for (int j = i; j < i + 200; j += 4) { s0 += x[j]; s1 += x[j + 1]; s2 += x[j + 2]; s3 += x[j + 3]; }
        out[i] = (s0 + s1) + (s2 + s3);
    }
}
"""
    verdict = graded(text)
    assert verdict.error is None
    assert verdict.score is not None
    assert 0.1 < verdict.score < 0.95


@pytest.mark.parametrize(
    ("text", "test", "says"),
    [
        (KERN + "{", "builds", "error"),
        ('#include "/work/hidden/solution/kern.c"\n', "builds", "No such file"),
        ("void other(void) {}\n", "builds", "is there a function kern"),
        (KERN + "{ *(volatile int*)8 = 1; }", "runs", "Segmentation fault"),
        (KERN + "{ for (volatile int i = 0;; i++); }", "runs", "longer than 0.2 s"),
        (KERN + "{ for (int i = 0; i < n; i++) out[i] = x[i] * 200; }", "correct", ""),
        (KERN + "{ volatile char a[1 << 26]; a[n] = 1; a[1 << 25] = 1; }", "runs", ""),
    ],
)
def test_bad_kernels_end_with_a_named_stage(graded: Graded, text: str, test: str, says: str) -> None:
    verdict = graded(text, measure={"call_timeout": 0.2})
    assert (verdict.error, verdict.score, verdict.resolved) == (None, 0.0, False)
    assert failed(verdict)[0] == test
    assert says in failed(verdict)[1]
    assert (verdict.stage == "timeout") == ("longer" in says)


def test_nan_where_none_belongs_is_wrong_g03(graded: Graded, fast: str) -> None:
    """Field case G03: a NaN in one place passes no comparison; and one that belongs there does."""
    nan = fast.replace("    double sum = 0;\n", "    double sum = 0;\n    float nan = 0.0f / 0.0f;\n")
    one = nan.rstrip().removesuffix("}") + "    out[n - 1] = nan;\n}\n"
    assert failed(graded(one))[0] == "correct"
    everywhere = nan.replace("out[i] = sum;", "out[i] = nan;")
    assert graded(everywhere).score == 0.0


def test_bundled_kernels_have_fresh_proofs_and_one_is_proven_again(bases: Bases) -> None:
    assert check(tasks.load("kernel/*"), bases, sample=1) == []
