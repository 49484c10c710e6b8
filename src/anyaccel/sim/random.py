"""torch.sim's random half: seeds, states, generators; re-exported by `module`."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from anyaccel.sim._utils import _checked_index
from anyaccel.sim.config import DEVICE_NAME

import _anyaccel_sim as _extension  # isort: skip  build.load() has put it there

# A generator is a seed and an offset: making one uses no device.
default_generators: tuple[torch.Generator, ...] = tuple(map(_extension.default_generator, range(_extension.device_count())))


def _generator(device: int | str | torch.device | None = None) -> torch.Generator:
    return default_generators[_checked_index(device)]


def get_rng_state(device: int | str | torch.device = DEVICE_NAME) -> torch.Tensor:
    """Give a device's random state, a CPU tensor of bytes. Blocks the host: no. Ordered on: nothing."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """Give the random states of all devices. Blocks the host: no. Ordered on: nothing."""
    return [generator.get_state() for generator in default_generators]


def set_rng_state(new_state: torch.Tensor, device: int | str | torch.device = DEVICE_NAME) -> None:
    """Set a device's random state to one that `get_rng_state` gave. Blocks the host: no. Ordered on: nothing."""
    _generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the random states of all devices, in order. Blocks the host: no. Ordered on: nothing."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the current device. Blocks the host: no. Ordered on: nothing."""
    _generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed all devices with one seed. Blocks the host: no. Ordered on: nothing."""
    for generator in default_generators:
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seed the current device with a random number. Blocks the host: no. Ordered on: nothing."""
    _generator().seed()


def seed_all() -> None:
    """Seed all devices with one random number, as torch.cuda does. Blocks the host: no. Ordered on: nothing."""
    first, *others = default_generators
    number = first.seed()
    for generator in others:
        generator.manual_seed(number)


def initial_seed() -> int:
    """Give the seed of the current device. Blocks the host: no. Ordered on: nothing."""
    return int(_generator().initial_seed())
