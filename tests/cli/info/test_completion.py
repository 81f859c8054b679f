"""Completion in a real bash, and scripts for the other shells."""

import shutil
import subprocess
from collections.abc import Callable

import pytest

from tests.conftest import Done, command

Vernier = Callable[..., Done]


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
            f'source "{script}"; function=$(complete -p vernier | sed "s/.*-F \\([^ ]*\\) .*/\\1/"); '
            'COMP_WORDS=("$@"); '
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
