"""Counts and rough figures in words."""

from vernier.wording import describe_batch, plural, printable, size_text, two_digits


def test_numbers_become_words() -> None:
    assert [plural(1, "process"), plural(2, "process"), plural(1000, "step")] == [
        "1 process",
        "2 processes",
        "1,000 steps",
    ]


def test_rough_figures_have_two_digits() -> None:
    assert [two_digits(v) for v in (0.0, 0.0213, 1.63, 43.2, 268.0, 1234.0)] == [
        "0",
        "0.021",
        "1.6",
        "43",
        "270",
        "1,200",
    ]


def test_sizes_have_the_unit_that_fits() -> None:
    sizes = (0, 512, 999.7, 12_300, 999_600, 3_440_000, 120_000_000, 1_230_000_000, 45e9, 2.5e12, 9e15)
    texts = ["0 B", "512 B", "1 kB", "12 kB", "1.0 MB", "3.4 MB", "120 MB", "1.2 GB", "45 GB", "2.5 TB", "9000 TB"]
    assert [size_text(size) for size in sizes] == texts


def test_control_characters_become_visible() -> None:
    hostile = "cat\x1b]0;owned\x07\x1b[31m\r\u202egpj.exe\u2028\ud83d\udc80"
    assert printable(hostile) == r"cat\x1b]0;owned\x07\x1b[31m\r\u202egpj.exe\u2028\ud83d\udc80"
    assert printable("one\ntwo\t3") == "one\\ntwo\t3"
    assert printable("one\ntwo\x9b31m", lines=True) == "one\ntwo\\x9b31m"


def test_names_in_every_script_stay_as_they_are() -> None:
    for name in ("Zürich", "кошка", "猫", "قطة", "חתול", "बिल्ली", "👩\u200d🔬", "a\u0301", "C:\\images"):
        assert printable(name) == name


def test_a_batch_is_divided_in_words() -> None:
    parts = {"world": 2, "process_batch": 8, "accumulation": 1}
    assert describe_batch(**parts, virtual_shards=None) == "16 = 2 processes x 8 images x 1 accumulation step"
    parts["accumulation"] = 6
    assert describe_batch(**parts, virtual_shards=12) == "96 = 2 processes x 8 images x 6 virtual shards"
