import errno

from vernier.errors import advice, did_you_mean, environment_error
from vernier.references import use


def test_near_names_are_suggested_and_all_are_listed_when_none_is_near() -> None:
    assert did_you_mean("resnet5", ["resnet50", "ssd300"]) == "Did you mean resnet50?"
    assert did_you_mean("zzz", ["b", "a"]) == "Known: a, b."
    assert did_you_mean("x", []) == ""
    assert did_you_mean("zzz", [f"name{i:02}" for i in range(40)]).endswith("name11 and 28 more.")


def test_what_the_system_refused_is_told_apart_from_a_bug() -> None:
    assert (
        environment_error(OSError(errno.ENOSPC, "No space left on device", "/data/x"))
        == "No space left on device: /data/x"
    )
    assert environment_error(OSError(errno.EINVAL, "Invalid argument")) == ""


def test_advice_about_a_full_disk_or_a_read_only_one_names_the_output_folder_as_data() -> None:
    for number in (errno.ENOSPC, errno.EACCES):
        assert use("out", slot="DIR") in advice(OSError(number, ""))
    assert advice(OSError(errno.EINVAL, "")) == ""
