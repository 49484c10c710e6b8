"""The simulated accelerator: enabling it, holding its streams, looking at what it did.

    anyaccel.sim.enable(devices=4)        # or ANYACCEL_SIM=4 in the environment, and no change to the code

From then on torch has a device type "sim" and `torch.sim` is its device module. Importing this package imports no torch and
compiles nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from anyaccel.backends.base import accelerator_changed
from anyaccel.errors import ConfigError, SimError
from anyaccel.sim import config
from anyaccel.sim.config import DEVICE_NAME, Config

# torch's own import may end in autoload, which comes here: this file must be complete before torch is imported, so functions do it.
if TYPE_CHECKING:
    import torch

__all__ = ["enable", "hold", "is_enabled", "reset_errors", "reset_stats", "stats"]

_MIN_TORCH = (2, 12)
_lock = threading.RLock()
_extension: ModuleType | None = None
_config: Config | None = None
# Set where it was found out too late that the process can't have the sim: every later try says the same.
_too_late = False


def enable(
    devices: int | None = None,
    memory: int | str | None = None,
    schedule: str | None = None,
    *,
    beside: bool | None = None,
) -> None:
    """Give this process simulated devices, and make "sim" torch's accelerator.

    What is None comes from the environment (ANYACCEL_SIM, ANYACCEL_SIM_MEMORY, ANYACCEL_SIM_SCHEDULE, ANYACCEL_SIM_BESIDE), or else
    from the defaults. The first time ever it compiles the sim. Once enabled, the sim stays; enabling it again with the same
    settings does nothing.

    Args:
        devices: how many devices, 1 to 127; 1 if nothing says otherwise.
        memory: of each device, in bytes or as text ("8GiB"); 16 GiB of address space, taken as used, if nothing says otherwise.
        schedule: who runs the tasks: "threads" (asynchronous) or "serial" (each at its call).
        beside: enable it also where another accelerator is available, which then no longer is torch's one accelerator.

    Blocks the host: while it compiles, about a minute; else for milliseconds.
    Ordered on: nothing.

    Raises:
        ConfigError: a setting can't be used, or the sim runs with another.
        SimError: not on this platform, with this torch or beside another accelerator; or the first backward came before.
        BuildError: it can't be compiled.
    """
    # Before the lock and the look at what is enabled: with ANYACCEL_SIM set this very import enables the sim.
    import torch

    _enable(torch, config.make(devices, memory, schedule, beside), asked=(devices, memory, schedule), late=True)


def is_enabled() -> bool:
    """Tell whether this process has the sim.

    Blocks the host: no.
    Ordered on: nothing.
    """
    return _config is not None


@contextlib.contextmanager
def hold(stream: torch.Stream | None = None) -> Iterator[None]:
    """Keep a stream's queue closed: what is enqueued meanwhile runs after the context.

    A host wait for what is held blocks until another thread opens the queue. Holds of the same stream nest.

    Args:
        stream: a stream of the sim; the current one if None.

    Blocks the host: no.
    Ordered on: `stream`; what it runs already is not stopped.

    Raises:
        SimError: the sim is not enabled.
        TypeError: something that is no stream.
        ValueError: a stream of another device type.
    """
    import torch

    extension = _need("hold")
    held = torch.accelerator.current_stream() if stream is None else stream
    if not isinstance(held, torch.Stream):
        raise TypeError(f"hold() needs a stream of device type {DEVICE_NAME!r} and was given {stream!r}.")
    if held.device.type != DEVICE_NAME:
        raise ValueError(f"hold() needs a stream of device type {DEVICE_NAME!r} and was given one of {held.device.type!r}.")
    extension.hold(held.device_index, held.stream_id)
    try:
        yield
    finally:
        extension.release(held.device_index, held.stream_id)


def stats() -> dict[str, Any]:
    """Count what the sim did.

    Returns:
        `host_waits`: how often the host waited, by op, since the start or `reset_stats`; `threads`: how many run;
        `remembered_shapes`: how many answers about output shapes are kept.

    Blocks the host: no.
    Ordered on: nothing.

    Raises:
        SimError: the sim is not enabled.
    """
    extension = _need("stats")
    return {
        "host_waits": dict(extension.host_waits()),
        "threads": extension.thread_count(),
        "remembered_shapes": extension.remembered_shapes(),
    }


def reset_stats() -> None:
    """Count host waits from 0 again.

    Blocks the host: no.
    Ordered on: nothing.

    Raises:
        SimError: the sim is not enabled.
    """
    _need("reset_stats").reset_host_waits()


def reset_errors(device: int | str | torch.device | None = None) -> None:
    """Make a device that failed usable again; torch.cuda has no such call, there only a new process helps.

    Args:
        device: which device; all if None.

    Blocks the host: no.
    Ordered on: nothing.

    Raises:
        SimError: the sim is not enabled.
        ValueError: another device type or an index out of range.
    """
    extension = _need("reset_errors")
    from anyaccel.sim._utils import _get_device_index

    extension.reset_errors(-1 if device is None else _get_device_index(device, optional=True))


def _autoload() -> None:
    """Enable the sim if ANYACCEL_SIM asks for it; called at the end of `import torch`."""
    import torch

    wanted = config.from_environment()
    if wanted is not None:
        _enable(torch, wanted, asked=(wanted.devices, None, None), late=False)


def _need(asked: str) -> ModuleType:
    if _extension is None:
        raise SimError(
            f"{asked}() needs the sim, which is not enabled. Start with ANYACCEL_SIM=2 in the environment, or call "
            "anyaccel.sim.enable(devices=2) before the first backward."
        )
    return _extension


def _enable(torch: Any, wanted: Config, *, asked: tuple[object, ...], late: bool) -> None:
    """Enable the sim.

    Args:
        torch: the module, which may still be importing.
        wanted: the settings.
        asked: devices, memory and schedule as the caller gave them; None: whatever it is.
        late: whether a backward may have run already.
    """
    global _config, _extension, _too_late
    with _lock:
        if _config is not None:
            _check_same(_config, wanted, asked)
            return
        if not _too_late:
            _check_possible(torch, wanted)
            from anyaccel.sim import build

            # From here on nothing can be undone: loading registers kernels, and torch renames PrivateUse1 once per process.
            extension = build.load()
            try:
                extension.start(wanted.devices, wanted.memory_bytes, wanted.schedule, wanted.workers)
            except RuntimeError as error:  # what only C++ sees: hooks or a guard that somebody else has registered
                raise SimError(f"The sim cannot start: {error}") from error
            atexit.register(extension.stop)
            _too_late = late and _backward_has_run(torch)
        if _too_late:
            raise SimError(
                "The sim must be enabled before the first backward: torch's autograd engine fixes its device threads then, and there is "
                "none for the sim now. Call anyaccel.sim.enable() earlier, or set ANYACCEL_SIM; this process goes on without it."
            )
        torch.utils.rename_privateuse1_backend(DEVICE_NAME)
        from anyaccel.sim import module, modules, processes

        torch._register_device_module(DEVICE_NAME, module)
        processes.refuse_tensors()
        modules.keep_parameters()
        torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
        _extension, _config = extension, wanted
        accelerator_changed()


def _check_same(current: Config, wanted: Config, asked: tuple[object, ...]) -> None:
    names = ("devices", "memory_bytes", "schedule")
    others = [
        f"{name}={getattr(current, name)} (asked: {getattr(wanted, name)})"
        for name, given in zip(names, asked, strict=True)
        if given is not None and getattr(current, name) != getattr(wanted, name)
    ]
    if others:
        raise ConfigError(
            f"The sim is enabled already, with {', '.join(others)}, and cannot change in a running process. Enable it once, "
            "with the settings for the whole process; ANYACCEL_SIM in the environment enables it at `import torch`."
        )


def _check_possible(torch: Any, wanted: Config) -> None:
    if sys.platform not in ("linux", "darwin"):
        raise SimError(f"The sim runs on Linux and macOS, and this is {sys.platform}. Use Linux in a virtual machine, WSL or a container.")
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < _MIN_TORCH:
        needed = ".".join(map(str, _MIN_TORCH))
        raise SimError(
            f"The sim needs torch {needed} or newer, and this is torch {torch.__version__}. "
            f"Install a newer one: pip install 'torch>={needed}'."
        )
    taken = torch._C._get_privateuse1_backend_name()
    if taken != "privateuseone" or torch._C._dispatch_has_kernel_for_dispatch_key("aten::empty.memory_format", "PrivateUse1"):
        raise SimError(
            f"The sim needs torch's PrivateUse1 slot, and {taken!r} has it: there is one per process. Don't import what registers "
            f"{taken!r}; if torch loads it by itself, set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and call anyaccel.sim.enable()."
        )
    accelerator = torch.accelerator.current_accelerator()
    # Not is_available(), which on CUDA poisons fork.
    if accelerator is not None and not wanted.beside and torch.get_device_module(accelerator).device_count() > 0:
        raise SimError(
            f"There is another accelerator, {accelerator.type!r}, and torch has one per process: with the sim, backward on "
            f"{accelerator.type!r} no longer works. Leave the sim off to use it, or say that you want the sim all the same: "
            "anyaccel.sim.enable(beside=True), or ANYACCEL_SIM_BESIDE=1."
        )


def _backward_has_run(torch: Any) -> bool:
    """Tell whether autograd's engine has started its threads without the sim's devices.

    Torch numbers its backwards, and a hook can read the number; so a backward on the CPU tells, and needs no sim. Where it is certain
    that there was none, none is run: a forked child could not run one any more (torch's own rule, from the first backward on).
    """
    if threading.active_count() == 1 and torch._C._autograd._get_sequence_nr() == 0:
        return False
    numbers: list[int] = []
    with torch.enable_grad():
        leaf = torch.ones((), device="cpu", requires_grad=True)
        root = leaf * 1
        root.register_hook(lambda grad: numbers.append(torch._C._current_graph_task_id()))
        root.backward()
    return numbers != [0]
