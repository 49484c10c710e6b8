"""Enabling the sim in code: once, early, and with nothing done where it is refused."""

from tests.helpers import run_python

_TRY = """
def tries(*args, **kwargs):
    try:
        acc.sim.enable(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "enabled"
"""
_HEAD = "import torch, anyaccel as acc\n" + _TRY


def run(code, env=None, **kwargs):
    """Run `code` after the imports, with warnings as errors."""
    import textwrap

    return run_python(_HEAD + textwrap.dedent(code), env, options=("-W", "error"), **kwargs).stdout


def test_enable():
    said = run(
        """
        assert not acc.sim.is_enabled() and not hasattr(torch, "sim")
        acc.sim.enable(devices=3, memory="64MiB", schedule="serial")
        assert acc.sim.is_enabled()
        assert str(torch.accelerator.current_accelerator()) == "sim" and torch.accelerator.device_count() == 3
        assert torch.get_device_module() is torch.sim and torch.get_device_module("sim") is torch.sim
        assert torch.sim.mem_get_info(2)[1] == 64 << 20 and torch.sim.get_device_properties(2).schedule == "serial"
        x = torch.arange(3.0, device="sim:2", requires_grad=True)
        (x * x).sum().backward()
        assert x.grad.tolist() == [0.0, 2.0, 4.0]
        print("done")
        """
    )
    assert said == "done\n"


def test_the_environment_fills_in_what_is_not_given():
    run(
        """
        acc.sim.enable(memory="64MiB")
        assert torch.accelerator.device_count() == 3
        assert torch.sim.mem_get_info()[1] == 64 << 20 and torch.sim.get_device_properties().schedule == "serial"
        """,
        {"ANYACCEL_SIM": "3", "ANYACCEL_SIM_MEMORY": "32MiB", "ANYACCEL_SIM_SCHEDULE": "serial", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )


def test_enabling_starts_no_thread_and_takes_no_memory():
    run(
        """
        import os
        acc.sim.enable(64)
        assert acc.sim.stats()["threads"] == 0 and not torch.sim.is_initialized()
        # So a fork is harmless, and the child can do everything.
        child = os.fork()
        if child == 0:
            x = torch.ones(2, device="sim:63", requires_grad=True)
            x.sum().backward()
            os._exit(x.grad.tolist() == [1.0, 1.0] and 23)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 23
        assert not torch.sim.is_initialized()
        """
    )


def test_twice():
    said = run(
        """
        print(tries(2, "64MiB"))
        print(tries(2, 64 << 20, "threads"), tries(), tries(beside=True))
        print(tries(3))
        print(tries(2, "128MiB", "serial"))
        print(tries(schedule="nonsense"))
        """
    ).splitlines()
    assert said[:2] == ["enabled", "enabled enabled enabled"]
    assert said[2].startswith("ConfigError: The sim is enabled already, with devices=2 (asked: 3)")
    assert "memory_bytes=67108864 (asked: 134217728), schedule=threads (asked: serial)" in said[3]
    assert "Enable it once" in said[3]
    assert "threads, serial" in said[4]


def test_from_many_threads_at_once():
    run(
        """
        import threading
        start, said = threading.Barrier(8), []
        def call():
            start.wait()
            said.append(tries(2))
        threads = [threading.Thread(target=call) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert said == ["enabled"] * 8, said
        torch.ones(1, device="sim:1", requires_grad=True).sum().backward()
        """
    )


def test_after_a_backward():
    said = run(
        """
        x = torch.ones(2, requires_grad=True)
        x.sum().backward()
        print(tries(2))
        print(tries(2))
        # Nothing of it stays: the process goes on as it was.
        assert not acc.sim.is_enabled() and torch.accelerator.current_accelerator() is None and not hasattr(torch, "sim")
        x.sum().backward()
        """
    ).splitlines()
    assert len(said) == 2
    assert said[0] == said[1]
    assert said[0].startswith("SimError: The sim must be enabled before the first backward")
    assert "ANYACCEL_SIM" in said[0]


def test_after_a_backward_of_another_thread():
    said = run(
        """
        import threading
        stop = threading.Event()
        def work(done):
            torch.ones(2, requires_grad=True).sum().backward()
            done.set()
            stop.wait()
        done = threading.Event()
        thread = threading.Thread(target=work, args=[done])
        thread.start()
        done.wait()
        print(tries(2))
        stop.set()
        """
    )
    assert said.startswith("SimError: The sim must be enabled before the first backward")


def test_after_a_graph_that_had_no_backward():
    run(
        """
        x = torch.ones(2, requires_grad=True)
        loss = x.sum()
        with torch.no_grad():
            acc.sim.enable(2)
        loss.backward()
        y = torch.ones(2, device="sim:1", requires_grad=True)
        y.sum().backward()
        assert y.grad.tolist() == [1.0, 1.0]
        """
    )


def test_calls_that_need_the_sim_say_so():
    said = run(
        """
        for call in (acc.sim.stats, acc.sim.reset_stats, acc.sim.reset_errors, acc.sim.hold().__enter__):
            try:
                call()
            except acc.SimError as error:
                print(error)
        """
    ).splitlines()
    assert [line.split("()")[0] for line in said] == ["stats", "reset_stats", "reset_errors", "hold"]
    assert all("ANYACCEL_SIM=2" in line and "anyaccel.sim.enable(devices=2)" in line for line in said)


def test_hold_stats_and_errors():
    run(
        """
        acc.sim.enable(2)
        side = torch.Stream(device="sim:1")
        x = torch.zeros(2, device="sim:1")
        torch.accelerator.synchronize(1)
        with acc.sim.hold(side), acc.sim.hold(side):
            with acc.stream(side):
                y = x + 1
            assert not side.query()
        side.synchronize()
        assert side.query() and y.tolist() == [1.0, 1.0]
        try:
            with acc.sim.hold(torch.Stream(device="sim:0")):
                raise KeyError
        except KeyError:
            pass

        acc.sim.reset_stats()
        x[0].item()
        stats = acc.sim.stats()
        assert sum(stats["host_waits"].values()) == 1, stats
        assert stats["threads"] > 0 and stats["remembered_shapes"] >= 0
        acc.sim.reset_stats()
        assert not acc.sim.stats()["host_waits"]

        bad = torch.zeros(2, device="sim:1").index_select(0, torch.tensor([7], device="sim:1"))
        for device, raises in ((1, True), (0, False)):
            try:
                torch.accelerator.synchronize(device)
                assert not raises
            except torch.AcceleratorError:
                assert raises
        acc.sim.reset_errors("sim:1")
        torch.accelerator.synchronize(1)
        for wrong in ("cuda:0", 5):
            try:
                acc.sim.reset_errors(wrong)
                raise AssertionError(wrong)
            except ValueError as error:
                assert str(wrong) in str(error)
        try:
            acc.sim.hold(torch.Stream(device="cpu")).__enter__()
            raise AssertionError
        except ValueError as error:
            assert "'sim'" in str(error) and "'cpu'" in str(error)
        """
    )


def test_what_the_extension_refuses_is_passed_on():
    said = run(
        """
        from types import SimpleNamespace
        from anyaccel.sim import build
        def start(*args):
            raise RuntimeError("hooks of libother.so are registered")
        build.load = lambda: SimpleNamespace(start=start)
        print(tries(2))
        assert not acc.sim.is_enabled()
        """
    )
    assert said == "SimError: The sim cannot start: hooks of libother.so are registered\n"


def test_a_forked_child_ends_without_its_threads():
    run(
        """
        import os, sys
        acc.sim.enable(2)
        x = torch.ones(2, device="sim") + 1
        assert x.tolist() == [2.0, 2.0]
        child = os.fork()
        if child == 0:
            assert torch.sim._is_in_bad_fork() and not torch.sim.is_initialized()
            for call in (torch.sim._lazy_init, torch.sim.init, lambda: x + 1):
                try:
                    call()
                    os._exit(1)
                except RuntimeError as error:
                    if "fork" not in str(error):
                        os._exit(2)
            sys.exit(23)  # with exit hooks
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 23
        assert (x + 1).tolist() == [3.0, 3.0]
        """
    )


def test_init():
    run(
        """
        acc.sim.enable(2)
        assert not torch.sim.is_initialized() and not torch.sim._initialized
        torch.sim.init()
        assert torch.sim.is_initialized() and torch.sim._initialized
        """
    )
