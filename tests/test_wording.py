"""Counts and rough figures in words."""

from vernier.wording import describe_batch, plural, printable, two_digits


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
