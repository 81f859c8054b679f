"""Reading torch files without running anything in them."""

import os
import pickle
import sys
from pathlib import Path

import pytest
import torch

from tests.models import their_checkpoints
from vernier.errors import ConfigError
from vernier.models import build, weights
from vernier.models.torch_file import _Placeholder, load_torch


def network() -> torch.nn.Module:
    return build("resnet14-small", num_classes=10, width=8)


@pytest.mark.parametrize("halves_first", [True, False])
def test_half_precision_weights_of_nvidias_code_fit_the_network(tmp_path: Path, halves_first: bool) -> None:
    file, model = tmp_path / "model_best.pth.tar", network()
    _, fp32 = their_checkpoints.write_nvidia_fp16(network(), file, epoch=3, best=1.0, halves_first=halves_first)
    report = weights.load(file, model)
    assert report.notes == ("apex.fp16_utils.loss_scaler.LossScaler: an object, skipped and not executed",)
    for name, value in model.named_parameters():
        torch.testing.assert_close(value.detach(), fp32[name], rtol=1e-3, atol=1e-3)
    assert "apex" not in sys.modules


def test_a_placeholder_has_the_values_and_no_behaviour(tmp_path: Path) -> None:
    file = tmp_path / "c.pth.tar"
    their_checkpoints.write_nvidia_fp16(network(), file, epoch=3, best=1.0, halves_first=True)
    scaler = load_torch(file).content["optimizer"]["loss_scaler"]
    assert isinstance(scaler, _Placeholder)
    assert vars(scaler) == {"cur_scale": 128.0}


def hostile_file(path: Path, module: str, name: str, argument: str) -> None:
    """A pickle that calls module.name(argument) when it is read; written by hand, as an attacker would."""
    call = b"c" + module.encode() + b"\n" + name.encode() + b"\n(X" + len(argument).to_bytes(4, "little")
    evil = call + argument.encode() + b"tR"
    plain = pickle.dumps({"state_dict": {}}, protocol=2)
    body = plain[:-1] + b"X\x04\x00\x00\x00evil" + evil + b"s."
    legacy = [pickle.dumps(value, protocol=2) for value in (0x1950A86A20F9469CFC6C, 1001, {})]
    path.write_bytes(b"".join([*legacy, body, pickle.dumps([], protocol=2)]))


@pytest.mark.parametrize("module", ["os", "posix", "subprocess", "builtins", "shutil", "torch.hub"])
def test_hostile_pickles_run_nothing_and_are_refused_by_name(tmp_path: Path, module: str) -> None:
    names = {"subprocess": "getoutput", "builtins": "exec", "shutil": "rmtree", "torch.hub": "load"}
    target, name = tmp_path / "boom", names.get(module, "system")
    argument = f"open({str(target)!r}, 'w')" if module == "builtins" else f"touch {target}"
    hostile_file(tmp_path / "evil.pth", module, name, argument)
    with pytest.raises(ConfigError, match=r"Cannot read weights from .*evil\.pth"):
        load_torch(tmp_path / "evil.pth")
    assert not target.exists()


def test_an_attack_under_the_name_of_a_skipped_package_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where a package called apex is installed and would do harm, a placeholder is called instead."""
    (tmp_path / "apex").mkdir()
    (tmp_path / "apex" / "__init__.py").write_text("import os\nsystem = os.system\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    target = tmp_path / "boom"
    hostile_file(tmp_path / "evil.pth", "apex", "system", f"touch {target}")
    file = load_torch(tmp_path / "evil.pth")
    assert file.skipped == ("apex.system",)
    assert isinstance(file.content["evil"], _Placeholder)
    assert "apex" not in sys.modules
    assert not target.exists()


def test_a_file_with_endless_names_is_refused(tmp_path: Path) -> None:
    names = b"".join(b"capex\nname%d\n" % number for number in range(40))
    legacy = [pickle.dumps(value, protocol=2) for value in (0x1950A86A20F9469CFC6C, 1001, {})]
    (tmp_path / "x.pth").write_bytes(b"".join([*legacy, b"\x80\x02(" + names + b"t.", pickle.dumps([], protocol=2)]))
    with pytest.raises(ConfigError, match=r"refers to apex\.name20"):
        load_torch(tmp_path / "x.pth")


def test_a_file_that_is_not_there_stays_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_torch(tmp_path / f"no{os.sep}such.pth")
