"""Records of statistics: what is in the JSON, and what is not."""

from vernier.measure.estimates import _mean_estimate, summarize
from vernier.records.codec import decode, encode
from vernier.records.statistics import Estimate, SampleSummary


def test_estimates_and_summaries_survive_their_json() -> None:
    samples = [1.0, 1.1, 1.2, 0.9]
    estimate, summary = _mean_estimate(samples), summarize(samples, unit="s", of="step, all devices")
    assert list(encode(estimate)) == ["value", "low", "high", "n", "basis", "method", "needs"]
    assert decode(Estimate, encode(estimate)) == estimate
    assert list(encode(summary))[-4:] == ["p5", "p95", "p99", "cv"]
    assert decode(SampleSummary, encode(summary)) == summary
