from vernier.lab.measured.decode_probe import probe_decoding


def test_a_short_probe_has_three_rounds_and_a_rate_between_its_extremes() -> None:
    probe = probe_decoding(0.0)
    assert probe.rounds == 3
    assert 0 < probe.slowest <= probe.images_per_s_per_core <= probe.fastest
