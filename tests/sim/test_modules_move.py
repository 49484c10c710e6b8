"""Modules that move to the sim and back keep their parameters, as between torch's own devices."""

from __future__ import annotations

import copy
import weakref

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.sim


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(tokens))


@pytest.mark.parametrize("there", ["sim", "sim:1"])
def test_parameters_stay_the_same_objects(there: str) -> None:
    module = Tied()
    weight = module.embedding.weight
    for device in (there, "sim:0", "cpu", there):
        module.to(device)
        assert module.head.weight is module.embedding.weight is weight
        assert weight.device.type == torch.device(device).type
        assert [parameter is weight for parameter in module.parameters()] == [True]


def test_an_optimizer_that_was_made_before_trains_the_module() -> None:
    module = Tied()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module.to("sim")
    before = module.head.weight.detach().clone()
    module(torch.arange(3, device="sim")).sum().backward()
    optimizer.step()
    assert (module.head.weight != before).any().item()


def test_gradients_move_along() -> None:
    module = nn.Linear(3, 3)
    module(torch.randn(2, 3)).sum().backward()
    expected = module.weight.grad.clone()
    module.to("sim")
    assert module.weight.grad.device.type == "sim"
    assert torch.equal(module.weight.grad.cpu(), expected)


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_nothing_else_changes(device: str) -> None:
    module = nn.LSTM(3, 4).to(device)
    module(torch.randn(2, 1, 3, device=device))[0].sum().backward()
    module.load_state_dict(copy.deepcopy(module.state_dict()))  # what is swapped could not have references, as these weights have
    assert not torch.__future__.get_swap_module_params_on_conversion()
    assert module.half().weight_ih_l0.dtype == torch.float16


def test_what_somebody_refers_to_weakly_moves_all_the_same() -> None:
    module = nn.Linear(3, 3)
    reference = weakref.ref(module.weight)
    assert module.to("sim").weight.device.type == "sim"
    del reference


def test_the_setting_is_put_back_after_an_error() -> None:
    def fail(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.numel():
            raise RuntimeError("no")
        return tensor.to("sim")

    with pytest.raises(RuntimeError, match="no"):
        nn.Linear(3, 3)._apply(fail)
    assert not torch.__future__.get_swap_module_params_on_conversion()
