"""The first five minutes: suggestions, completion in a real shell, colours, --json everywhere, doctor on one screen."""

import inspect
import os
import pty
import re
import shutil
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from tests.conftest import Done, command
from vernier.cli import COMMANDS, GROUPS

Vernier = Callable[..., Done]
COLOUR = re.compile(rb"\x1b\[[0-9;]*(3[0-9]|4[0-7]|9[0-7])[0-9;]*m")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], "Did you mean train?"),
        (["data", "mke"], "Did you mean make?"),
        (["completion", "tcsh"], "'fish'"),
        (["doctor", "--seconds", "0"], "--no-probe"),
        (["exprt", "runs/x"], "Did you mean export or"),
    ],
)
def test_what_is_misspelt_is_suggested(vernier_here: Vernier, arguments: list[str], words: str) -> None:
    done = vernier_here(*arguments)
    assert done.code == 2
    assert words in done.err
    assert done.out == ""


def test_every_command_for_people_has_json_but_the_one_that_prints_a_script() -> None:
    functions = dict(COMMANDS)
    for group in GROUPS:
        functions |= {f"{group} {name}": f for name, f in import_module(f"vernier.cli.{group}").COMMANDS.items()}
    without = [name for name, function in functions.items() if "json" not in inspect.signature(function).parameters]
    assert sorted(without) == ["bench arm", "completion"]  # the first is what a benchmark starts, and speaks JSON only


@pytest.fixture(scope="module")
def completes(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., set[str]]:
    """What bash offers for a line that ends in its last word."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not here")
    script = tmp_path_factory.mktemp("shell") / "vernier.bash"
    with script.open("w") as out:
        subprocess.run(command("completion", "bash"), stdout=out, check=True)

    def ask(*words: str) -> set[str]:
        line = (
            f'source "{script}"; function=$(complete -p vernier | sed "s/.*-F \\([^ ]*\\) .*/\\1/"); COMP_WORDS=("$@"); '
            'COMP_CWORD=$(($# - 1)); $function; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run([bash, "-c", line, "bash", *words], capture_output=True, text=True, check=True)
        return set(done.stdout.splitlines())

    return ask


def test_bash_completes_commands_actions_flags_and_values(completes: Callable[..., set[str]]) -> None:
    assert completes("vernier", "ex") == {"export"}
    assert {"make", "prepare", "verify", "inspect", "get"} <= completes("vernier", "data", "")
    assert completes("vernier", "export", "--fo") == {"--format"}
    assert completes("vernier", "export", "--format", "torch") == {"torchvision", "torch-export"}
    assert completes("vernier", "train", "--no-tens") == {"--no-tensorboard"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script_too(vernier_here: Vernier, shell: str) -> None:
    done = vernier_here("completion", shell)
    assert done.code == 0
    assert "'export'" in done.out
    assert "'torch-export'" in done.out


def _on_a_terminal(*arguments: str, **environment: str) -> bytes:
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        command(*arguments), stdin=follower, stdout=follower, stderr=follower,
        env={**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm-256color", **environment},
    )  # fmt: skip
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    child.wait(timeout=60)
    os.close(leader)
    return shown


def test_colours_are_for_terminals_and_no_color_is_honoured() -> None:
    wrong = ("train", "--ephocs", "3")
    assert COLOUR.search(_on_a_terminal(*wrong))
    plain = _on_a_terminal(*wrong, NO_COLOR="1")
    assert b"--epochs" in plain
    assert not COLOUR.search(plain)
    piped = subprocess.run(command(*wrong), capture_output=True)
    assert b"\x1b[" not in piped.stderr
    assert b"--epochs" in piped.stderr


def test_doctor_fits_on_a_screen_and_says_what_can_be_done(vernier_here: Vernier) -> None:
    done = vernier_here("doctor", "--no-probe")
    lines = done.out.splitlines()
    assert len(lines) <= 40
    assert "\x1b[" not in done.out
    for word in ("machine", "threads", "device", "speed", "extras", "fp32 yes", "tf32 refused", "advice"):
        assert word in done.out
    found = vernier_here("doctor", "--no-probe", "--json").json()
    assert found["probe"] is None
    assert found["machine"]["disk_free_bytes"] > 0
    assert all(part["install"] for part in found["extras"])


def test_the_probe_trains_and_decodes(vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch) -> None:
    from vernier.engine.measured import decode_probe as decoding
    from vernier.measure.machine import probe

    monkeypatch.setattr(decoding, "_PX", 64)
    monkeypatch.setattr(probe, "PX", 32)
    monkeypatch.setitem(probe.BATCH, "cpu", 2)
    found = vernier_here("doctor", "--seconds", "0.1", "--json").json()["probe"]
    for one in found["training"]:
        assert 0 < one["slowest"] <= one["images_per_s"] <= one["fastest"]
        assert one["steps"] >= 2
    read = found["decoding"]
    assert 0 < read["slowest"] <= read["images_per_s_per_core"] <= read["fastest"]


def test_what_is_missing_is_named_with_its_command_absence_faked(
    vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from vernier.measure.machine import doctor

    monkeypatch.setattr(doctor, "installed_version", lambda package: None)
    shown = vernier_here("doctor", "--no-probe").out
    assert "TensorBoard's event files of every run): pip install 'vernier[tensorboard]'" in shown
    assert "pip install 'vernier[onnx]'" in shown
