import pytest

from vernier.cli.flags import apply_flags, choose_averaged
from vernier.config import Config
from vernier.errors import ConfigError


def test_flags_change_the_configuration_and_set_comes_last() -> None:
    config = apply_flags(Config(), {"recipe.optim.lr": 0.5, "machine.procs": None}, ("optim.lr=0.25",))
    assert config.recipe.optim.lr == 0.25
    assert config.machine == Config().machine  # a flag that was not given changes nothing


@pytest.mark.parametrize(("ema", "no_ema", "choice"), [(True, False, True), (False, True, False), (False, False, None)])
def test_ema_flags_are_one_choice(ema: bool, no_ema: bool, choice: bool | None) -> None:
    assert choose_averaged(ema, no_ema) is choice


def test_both_ema_flags_are_refused() -> None:
    with pytest.raises(ConfigError, match="not both"):
        choose_averaged(True, True)


def test_graph_is_an_old_name_of_compile() -> None:
    assert apply_flags(Config(), {"machine.mode": "graph"}, ()).machine.mode == "compile"
