"""The command `anyaccel`: run, info, sim build. Each command imports what it needs when it is called."""

from __future__ import annotations

import builtins
import os
import sys
from dataclasses import dataclass, field
from types import ModuleType, TracebackType
from typing import Annotated, Any

import typer

AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"

app = typer.Typer(help="One runtime for every PyTorch accelerator.", add_completion=False, no_args_is_help=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        import anyaccel

        print(anyaccel.__version__)
        raise typer.Exit


@app.callback()
def _options_of_all_commands(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


sim_app = typer.Typer(help="The simulated accelerator.", no_args_is_help=True)
app.add_typer(sim_app, name="sim")


@dataclass
class Plan:
    """What `run` was asked to run; it starts once the parser, its handlers and its stack frames are gone."""

    target: str = ""
    is_module: bool = False
    arguments: list[str] = field(default_factory=list)


def main() -> None:
    """Run the command line.

    Blocks the host: yes.
    Ordered on: nothing.

    Raises:
        SystemExit: always, but where `run` runs a script: then whatever leaves the script.
    """
    from anyaccel.errors import AnyaccelError, ConfigError

    plan = Plan()
    hook = sys.excepthook
    try:
        app(obj=plan)
    except SystemExit as leaving:
        if leaving.code or not plan.target:
            raise
    except AnyaccelError as error:
        print(f"anyaccel: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    sys.excepthook = hook  # typer has put its own there
    _run(plan)


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="SCRIPT", help="The script (or, after -m, the module) to run.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Its own arguments, left alone.")] = None,
    is_module: Annotated[bool, typer.Option("-m", help="SCRIPT is the name of a module, as in `python -m`.")] = False,
    sim: Annotated[int | None, typer.Option(metavar="N", help="Start N simulated devices; 0: start none.", show_default=False)] = None,
    memory: Annotated[str | None, typer.Option(metavar="BYTES", help="Memory of each simulated device, such as 8GiB.")] = None,
    schedule: Annotated[str | None, typer.Option(metavar="NAME", help="How the sim runs tasks: threads or serial.")] = None,
) -> None:
    """Run a Python script on the accelerator that is there, or where there is none on the sim (on the CPU with ANYACCEL_ALLOW_CPU=1).

    The script sees its own sys.argv, and its exit status and the signals that end it are those of this process.
    """
    if not is_module and not os.path.exists(target):  # noqa: PTH110 (also "" and names that no Path can hold)
        print(f"anyaccel run: can't open file {target!r}: there is no such file", file=sys.stderr)
        raise typer.Exit(2)
    _choose_accelerator(sim, memory, schedule)
    plan: Plan = context.obj
    plan.target, plan.is_module, plan.arguments = target, is_module, arguments or []


def _choose_accelerator(devices: int | None, memory: str | None, schedule: str | None) -> None:
    """Starts the sim where it is asked for, or where nothing else is there. What is asked for holds for the script's children too."""
    import anyaccel
    from anyaccel import sim
    from anyaccel.backends.registry import cpu_allowed
    from anyaccel.errors import ConfigError

    asked = {"ANYACCEL_SIM": devices, "ANYACCEL_SIM_MEMORY": memory, "ANYACCEL_SIM_SCHEDULE": schedule}
    changed = {name: str(value) for name, value in asked.items() if value is not None and os.environ.get(name) != str(value)}
    os.environ.update(changed)
    wanted = sim.config.from_environment()
    sim.config.make()  # bad values are told also where the sim is not wanted
    if changed and sim.is_enabled():
        os.execv(sys.executable, sys.orig_argv)  # the environment enabled it, with other settings, before this file was read
    if (autoload := os.environ.get(AUTOLOAD, "1")) != "1":
        print(
            f"anyaccel run: {AUTOLOAD}={autoload}: torch loads no backend by itself, neither here nor in child processes", file=sys.stderr
        )
    if wanted is not None:
        sim.enable(wanted.devices, wanted.memory_bytes, wanted.schedule, beside=wanted.beside)
    elif anyaccel.is_available():
        if memory is not None or schedule is not None:
            found = anyaccel.current_accelerator()
            raise ConfigError(f"--memory and --schedule shape the sim, but this run uses {found}. Add --sim N, or leave them out.")
    elif devices is None and not cpu_allowed():
        sim.enable(devices=1)
        os.environ["ANYACCEL_SIM"] = "1"
        print("anyaccel run: there is no accelerator here: started the sim with one device (--sim N for more)", file=sys.stderr)


def _run(plan: Plan) -> None:
    """Runs it as python would: sys.argv, sys.path[0], __main__, and a traceback that begins in the script."""
    import runpy
    import zipfile

    # Looking whether it is an archive would empty a pipe.
    is_archive = os.path.isdir(plan.target) or (os.path.isfile(plan.target) and zipfile.is_zipfile(plan.target))  # noqa: PTH112, PTH113
    is_file = not plan.is_module and not is_archive
    sys.argv = [plan.target, *plan.arguments]
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]
        if plan.is_module:
            sys.path.insert(0, os.getcwd())  # noqa: PTH109
        elif is_file:
            sys.path.insert(0, os.path.dirname(os.path.realpath(plan.target)))  # noqa: PTH120
    try:
        if is_file:
            _run_file(os.path.abspath(plan.target))  # noqa: PTH100
        elif plan.is_module:
            runpy.run_module(plan.target, run_name="__main__", alter_sys=True)
        else:  # a folder or an archive, which runpy also puts on sys.path
            runpy.run_path(plan.target, run_name="__main__")
    except SystemExit:
        raise
    except BaseException as error:
        shown = _trace_from_the_script(error)
        if shown is None and plan.is_module and isinstance(error, ImportError):
            print(f"anyaccel run: {error}", file=sys.stderr)
            sys.exit(2)
        _report_with(error, shown)
        raise


def _run_file(path: str) -> None:
    """Unlike runpy.run_path it leaves __main__ in place afterwards, for what runs at exit, and sys.argv as it was typed."""
    import io
    from importlib.machinery import SourceFileLoader

    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    module = ModuleType("__main__")
    module.__dict__.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path), __builtins__=builtins)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def _trace_from_the_script(error: BaseException) -> TracebackType | None:
    """The traceback of `error` without the frames of this file and of runpy that it begins with."""
    import runpy

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        trace = trace.tb_next
    return trace


def _report_with(error: BaseException, shown: TracebackType | None) -> None:
    """Makes the interpreter, which reports `error` and picks the exit status, show the traceback `shown`."""
    hook = sys.excepthook

    def report(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        sys.excepthook = hook
        if value is error:
            value, trace = value.with_traceback(shown), shown
        hook(kind, value, trace)

    sys.excepthook = report


@app.command()
def info(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False) -> None:
    """Show the accelerator, its devices, what the backend supports, and what torch loads by itself."""
    found = _gather()
    if as_json:
        import json

        print(json.dumps(found, indent=2))
    else:
        _show(found)


def _gather() -> dict[str, Any]:
    """All that `info` knows, as JSON would hold it. Asking a device for its memory initialises it."""
    import importlib.metadata as metadata
    import platform

    import torch

    import anyaccel
    from anyaccel.backends import table

    accelerator = anyaccel.current_accelerator(check_available=True)
    return {
        "anyaccel": metadata.version("anyaccel"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "accelerator": accelerator.type if accelerator else None,
        "devices": [_device(index) for index in range(anyaccel.device_count())],
        "supports": {feature: anyaccel.supports(feature) for feature in table.features()} if accelerator else {},
        "autoload": {
            "on": os.environ.get(AUTOLOAD, "1") == "1",
            "entry_points": sorted(point.name for point in metadata.entry_points(group="torch.backends")),
        },
        "environment": {name: value for name, value in sorted(os.environ.items()) if name == AUTOLOAD or name.startswith("ANYACCEL_")},
    }


def _device(index: int) -> dict[str, Any]:
    import anyaccel

    known: dict[str, Any] = {"index": index, "name": None, "driver": None, "free_bytes": None, "total_bytes": None}
    if anyaccel.supports("get_device_properties"):
        properties = anyaccel.get_device_properties(index)
        known |= {"name": properties.name, "driver": properties.driver_version, "total_bytes": properties.total_memory_bytes}
    if anyaccel.supports("get_memory_info"):
        known["free_bytes"], known["total_bytes"] = anyaccel.memory.get_memory_info(index)
    return known


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(soft_wrap=True)
    kind, autoload = found["accelerator"], found["autoload"]
    facts = Table("", "", show_header=False)
    facts.add_row("accelerator", kind or "none: ANYACCEL_SIM=2 in the environment makes two simulated devices")
    facts.add_row("versions", f"anyaccel {found['anyaccel']}, torch {found['torch']}, Python {found['python']}")
    points = ", ".join(autoload["entry_points"]) or "nothing is installed"
    facts.add_row("autoload", points if autoload["on"] else f"off, since {AUTOLOAD} is not 1: {points} will not be loaded")
    facts.add_row("environment", " ".join(f"{name}={value}" for name, value in found["environment"].items()) or "nothing is set")
    console.print(facts)
    if kind:
        devices = Table("device", "name", "memory", "free", "driver", title="Devices")
        for one in found["devices"]:
            sizes = (f"{one[key] / 2**30:.1f} GiB" if one[key] is not None else "not told" for key in ("total_bytes", "free_bytes"))
            devices.add_row(f"{kind}:{one['index']}", one["name"] or "not told", *sizes, one["driver"] or "not told")
        console.print(devices)
        supports = Table("feature", kind, title="Supports")
        for feature, has in found["supports"].items():
            supports.add_row(feature, "yes" if has else "no")
        console.print(supports)


@sim_app.command("build")
def sim_build(
    force: Annotated[bool, typer.Option(help="Compile also where the cache has it.")] = False,
    verbose: Annotated[bool, typer.Option(help="Print the compiler's commands and what it says.")] = False,
) -> None:
    """Compile the sim now, instead of at its first use."""
    from anyaccel.sim.build import build

    print(build(verbose=verbose, force=force))
