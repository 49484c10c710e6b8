"""The `torch.backends` entry point, which torch calls at the end of `import torch`.

A module of its own and not one of the package: importing anyaccel here would be circular where anyaccel is what imports torch
(torch-spyre issue 2935), and would cost time where nobody asked for the sim.
"""

import os


def autoload() -> None:
    """Enable the sim if ANYACCEL_SIM asks for it.

    Blocks the host: only if the variable is set: while the sim is compiled, the first time.
    Ordered on: nothing.

    Raises:
        ConfigError: ANYACCEL_SIM, or a variable that goes with it, has a value that can't be used.
        SimError: the sim can't be enabled.
    """
    if os.environ.get("ANYACCEL_SIM", "").strip() in ("", "0"):
        return
    # The import of a submodule works while the package around it is still importing.
    from anyaccel.sim import _autoload

    _autoload()
