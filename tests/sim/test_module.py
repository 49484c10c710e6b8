"""`torch.sim`: what torch and libraries expect of a device module, and that it shares its state with `torch.accelerator`."""

import copy
import io
import pickle
import threading

import pytest
import torch

pytestmark = pytest.mark.sim


@pytest.fixture(autouse=True)
def on_device_0():
    torch.accelerator.set_device_index(0)
    yield
    torch.accelerator.set_device_index(0)


def test_it_is_the_module_of_the_device():
    assert torch.get_device_module("sim") is torch.sim
    assert torch.sim.is_available()
    assert torch.sim.device_count() == torch.accelerator.device_count() == 4
    assert torch._utils._get_available_device_type() == "sim"
    missing = [name for name in torch.sim.__all__ if not hasattr(torch.sim, name)]
    assert not missing


def test_everything_that_torch_looks_for_is_there():
    """Names that torch's Python sources read from a device module (checkpointing, FSDP, DTensor, fork_rng, DataLoader, profilers)."""
    expected = """
        Event Stream _exchange_device _initialized _is_in_bad_fork _lazy_call _lazy_init _maybe_exchange_device _utils
        current_device current_stream default_generators default_stream device device_count device_of empty_cache
        get_amp_supported_dtype get_device_capability get_device_name get_device_properties get_rng_state get_rng_state_all
        init initial_seed is_available is_bf16_supported is_initialized manual_seed manual_seed_all max_memory_allocated
        max_memory_reserved mem_get_info memory_allocated memory_reserved memory_snapshot memory_stats memory_summary
        reset_accumulated_memory_stats reset_peak_memory_stats seed seed_all set_device set_per_process_memory_fraction
        set_rng_state set_rng_state_all set_stream stream synchronize
    """
    assert not [name for name in expected.split() if not hasattr(torch.sim, name)]
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = torch.sim.no_such_name


# Made in the test: where the sim is off, this file is read as well, and torch knows no such device.
@pytest.mark.parametrize("device", [lambda: 2, lambda: "sim:2", lambda: torch.device("sim", 2), lambda: torch.device("sim:2")])
def test_one_current_device(device):
    torch.sim.set_device(device())
    assert torch.sim.current_device() == torch.accelerator.current_device_index() == 2
    torch.accelerator.set_device_index(1)
    assert torch.sim.current_device() == 1
    assert torch.empty(1, device="sim").device.index == 1
    torch.sim.set_device("sim")  # the current one
    torch.sim.set_device(-1)
    assert torch.sim.current_device() == 1


def test_device_context():
    with torch.sim.device(2):
        assert torch.accelerator.current_device_index() == 2
        with torch.sim.device("sim:3"), torch.sim.device(None), torch.sim.device(-1):
            assert torch.sim.current_device() == 3
        assert torch.sim.current_device() == 2
        with pytest.raises(KeyError), torch.sim.device(1):
            raise KeyError
        assert torch.sim.current_device() == 2
    assert torch.sim.current_device() == 0


def test_device_of():
    tensor = torch.empty(1, device="sim:3")
    with torch.sim.device_of(tensor):
        assert torch.sim.current_device() == 3
    with torch.sim.device_of(tensor.untyped_storage()):
        assert torch.sim.current_device() == 3
    with torch.sim.device(1), torch.sim.device_of(torch.empty(1)):
        assert torch.sim.current_device() == 1


def test_the_device_is_per_thread():
    torch.sim.set_device(3)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.sim.current_device()))
    thread.start()
    thread.join()
    assert seen == [0]


def test_exchange_device():
    assert torch.sim._exchange_device(2) == 0
    assert torch.sim._maybe_exchange_device(-1) == -1
    assert torch.sim._maybe_exchange_device(1) == 2
    assert torch.accelerator.current_device_index() == 1


@pytest.mark.parametrize("name", ["set_device", "device", "synchronize", "current_stream", "memory_allocated", "get_rng_state"])
def test_another_device_type_is_an_error_that_names_both(name):
    call = getattr(torch.sim, name)
    for device in ("cpu", torch.device("cuda", 0)):
        with pytest.raises(ValueError, match="'sim'.*" + torch.device(device).type):
            call(device)
    with pytest.raises(ValueError, match=r"an int, a str, a torch\.device or None"):
        call(1.5)


@pytest.mark.parametrize(
    "name",
    [
        *("set_device", "synchronize", "current_stream", "default_stream", "memory_allocated", "memory_stats", "mem_get_info"),
        *("reset_peak_memory_stats", "get_device_properties", "get_device_name", "get_device_capability", "get_rng_state"),
        *("get_per_process_memory_fraction", "memory_summary"),
    ],
)
def test_an_index_out_of_range(name):
    for index in (4, 200, 1 << 40):
        with pytest.raises(ValueError, match="There is no device"):
            getattr(torch.sim, name)(index)


def test_streams():
    side = torch.sim.Stream(device="sim:2")
    assert isinstance(side, torch.Stream)
    assert side.device == torch.device("sim:2")
    default = torch.sim.default_stream(2)
    assert torch.sim.current_stream("sim:2") == default
    assert side not in (default, torch.sim.default_stream(1))
    with torch.sim.stream(side), torch.sim.stream(None), torch.sim.stream(side):
        assert torch.sim.current_device() == 2
        assert torch.accelerator.current_stream() == side
    assert torch.sim.current_device() == 0
    assert torch.accelerator.current_stream(2) == default
    with pytest.raises(KeyError), torch.sim.stream(side):
        raise KeyError
    assert torch.accelerator.current_stream(2) == default
    torch.sim.set_stream(None)
    assert torch.sim.current_device() == 0
    torch.sim.set_stream(side)
    assert torch.sim.current_stream() == side
    assert torch.sim.current_device() == 2
    torch.sim.set_stream(default)


def test_work_runs_on_the_stream_of_the_context():
    import anyaccel as acc

    side = torch.sim.Stream()
    x = torch.zeros(3, device="sim")
    torch.sim.synchronize()
    with acc.sim.hold(side):
        with torch.sim.stream(side):
            y = x + 1
        assert not side.query()
        assert torch.sim.default_stream().query()
    torch.sim.synchronize()
    assert y.tolist() == [1.0, 1.0, 1.0]


def test_events():
    event = torch.sim.Event(enable_timing=True)
    other = torch.sim.Event(enable_timing=True)
    event.record()
    other.record()
    torch.sim.synchronize()
    assert event.query()
    assert event.elapsed_time(other) >= 0


def test_capturing():
    assert torch.sim.is_current_stream_capturing() is False


def test_properties():
    properties = torch.sim.get_device_properties("sim:1")
    assert properties.total_memory == torch.sim.mem_get_info(1)[1]
    assert properties.multi_processor_count >= 1
    assert properties.name == torch.sim.get_device_name(1)
    assert "sim" in properties.name
    assert torch.float32 in torch.sim.get_device_capability(1)["supported_dtypes"]
    assert torch.sim.is_bf16_supported()
    assert torch.sim.can_device_access_peer(0, 1)
    assert not torch.sim.can_device_access_peer(1, "sim:1")


def test_memory():
    device = "sim:3"
    torch.sim.empty_cache()
    before = torch.sim.memory_allocated(device)
    x = torch.empty(256, device=device)
    assert torch.sim.memory_allocated(device) == torch.accelerator.memory_allocated(3) == before + 1024
    assert torch.sim.memory_stats(device)["allocated_bytes.all.current"] == before + 1024
    assert torch.sim.memory_reserved(device) >= before + 1024
    free, total = torch.sim.mem_get_info(device)
    assert total - free >= before + 1024
    assert f"{before + 1024:,}" in torch.sim.memory_summary(device)
    assert "large_pool" not in torch.sim.memory_summary(device, abbreviated=True)
    held = [segment for segment in torch.sim.memory_snapshot() if segment["device"] == 3]
    assert sum(segment["allocated_size"] for segment in held) == before + 1024
    del x
    assert torch.sim.max_memory_allocated(device) >= before + 1024
    torch.sim.reset_peak_memory_stats(device)
    assert torch.sim.max_memory_allocated(device) == before
    torch.sim.reset_accumulated_memory_stats(device)
    assert torch.sim.memory_stats(device)["allocated_bytes.all.freed"] == 0
    torch.sim.synchronize(device)
    torch.sim.empty_cache()
    assert torch.sim.mem_get_info(device)[0] > free


def test_memory_fraction():
    total = torch.sim.mem_get_info(2)[1]
    torch.sim.set_per_process_memory_fraction(0.25, "sim:2")
    try:
        assert torch.sim.get_per_process_memory_fraction(2) == 0.25
        assert torch.sim.get_per_process_memory_fraction(1) == 1
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(total // 2, dtype=torch.uint8, device="sim:2")
        torch.empty(total // 2, dtype=torch.uint8, device="sim:1")
    finally:
        torch.sim.set_per_process_memory_fraction(1, 2)
    torch.empty(total // 2, dtype=torch.uint8, device="sim:2")
    with pytest.raises(ValueError, match=r"between 0 and 1, and 1\.5"):
        torch.sim.set_per_process_memory_fraction(1.5)


def test_host_memory():
    before = torch.sim.host_memory_stats()
    x = torch.empty(1000).pin_memory()
    assert x.is_pinned()
    assert torch.sim.host_memory_stats()["active_bytes.current"] > before["active_bytes.current"]
    del x
    torch.sim.empty_host_cache()
    torch.sim.reset_peak_host_memory_stats()
    torch.sim.reset_accumulated_host_memory_stats()
    assert torch.sim.host_memory_stats()["active_bytes.current"] == before["active_bytes.current"]


def draw(device):
    return torch.rand(4, device=device).tolist()


def test_random_numbers():
    torch.manual_seed(7)  # seeds all devices
    first = draw("sim:0")
    assert draw("sim:1") == first
    assert draw("sim:1") != first
    assert torch.sim.initial_seed() == 7
    with torch.sim.device(1):
        torch.sim.manual_seed(7)
        assert torch.sim.initial_seed() == 7
    assert draw("sim:1") == first
    assert draw("sim:0") != first

    state = torch.sim.get_rng_state("sim:1")
    assert state.device.type == "cpu"
    assert state.dtype == torch.uint8
    again = draw("sim:1")
    torch.sim.set_rng_state(state, 1)
    assert draw("sim:1") == again

    states = torch.sim.get_rng_state_all()
    drawn = [draw(f"sim:{index}") for index in range(4)]
    torch.sim.set_rng_state_all(states)
    assert [draw(f"sim:{index}") for index in range(4)] == drawn

    torch.sim.seed_all()
    seeds = {generator.initial_seed() for generator in torch.sim.default_generators}
    assert len(seeds) == 1
    torch.sim.seed()
    assert torch.sim.initial_seed() not in seeds
    torch.sim.manual_seed_all(3)
    assert [generator.initial_seed() for generator in torch.sim.default_generators] == [3] * 4


def test_fork_rng():
    torch.manual_seed(1)
    with torch.random.fork_rng(devices=[0, 1], device_type="sim"):
        inside = draw("sim:1")
    assert draw("sim:1") == inside
    with torch.random.fork_rng(devices=[0]):  # torch 2.13: the accelerator's
        inside = draw("sim:0")
    assert draw("sim:0") == inside


def test_checkpoint_keeps_the_random_state():
    from torch.utils.checkpoint import checkpoint

    assert torch.sim._initialized
    x = torch.ones(64, device="sim:2", requires_grad=True)
    masks = []

    def block(value):
        masks.append(torch.rand(64, device="sim:2") > 0.5)
        return value * masks[-1]

    for reentrant in (True, False):
        masks.clear()
        checkpoint(block, x, use_reentrant=reentrant).sum().backward()
        assert len(masks) == 2
        assert torch.equal(masks[0], masks[1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_autocast_casts_or_says_that_it_does_not(dtype):
    x = torch.ones(4, 4, device="sim")
    if dtype in torch.sim.get_amp_supported_dtype():
        with torch.autocast("sim", dtype=dtype):
            assert (x @ x).dtype == dtype
    else:
        with pytest.warns(UserWarning, match="only supports dtypes of"), torch.autocast("sim", dtype=dtype):
            assert (x @ x).dtype == torch.float32


def save(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("location", "device"),
    [
        (None, "sim:1"),
        ("cpu", "cpu"),
        ("sim", "sim:0"),
        ("sim:2", "sim:2"),
        ({"sim:1": "sim:2"}, "sim:2"),
        (lambda storage, location: storage.sim(3), "sim:3"),
    ],
)
def test_save_and_load(location, device):
    saved = save({"weight": torch.arange(4.0, device="sim:1"), "step": 3})
    for same in [location, torch.device(location)] if isinstance(location, str) else [location]:
        loaded = torch.load(io.BytesIO(saved), map_location=same)
        assert loaded["weight"].device == torch.device(device)
        assert loaded["weight"].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_load_what_a_cpu_saved_and_what_does_not_fit():
    assert torch.load(io.BytesIO(save(torch.ones(2))), map_location="sim:1").device == torch.device("sim:1")
    with pytest.raises(RuntimeError, match=r"device 7 but torch\.sim\.device_count\(\) is 4"):
        torch.load(io.BytesIO(save(torch.ones(2))), map_location="sim:7")


def test_pickle_and_copy():
    tensor = torch.arange(4.0, device="sim:1")
    for twin in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor), copy.deepcopy(torch.nn.Parameter(tensor))):
        assert twin.device == tensor.device
        assert twin.tolist() == tensor.tolist()
        assert twin.data_ptr() != tensor.data_ptr()


def test_methods():
    tensor = torch.ones(2)
    assert tensor.sim(1).device == torch.device("sim:1")
    assert tensor.sim().is_sim
    assert not tensor.is_sim
    with torch.sim.device(2):
        assert tensor.sim().device == torch.device("sim:2")
    model = torch.nn.Linear(2, 2).sim("sim:3")
    assert model.weight.device == torch.device("sim:3")
    storage = tensor.untyped_storage().sim(1)
    assert storage.is_sim
    assert storage.cpu().tolist() == tensor.untyped_storage().tolist()
    packed = torch.nn.utils.rnn.pack_sequence([tensor]).sim()
    assert packed.is_sim


def test_dynamo_takes_the_contexts():
    side = torch.sim.Stream(device="sim:1")

    def run(x):
        with torch.sim.device(1):
            x = x + 1
        with torch.sim.stream(side):
            return x * 2

    x = torch.ones(2, device="sim:1")
    torch.sim.synchronize(1)
    y = torch.compile(run, backend="eager", fullgraph=True)(x)
    torch.sim.synchronize(1)
    assert y.tolist() == [4.0, 4.0]


def test_data_loader_pins():
    loader = torch.utils.data.DataLoader(torch.arange(8.0), batch_size=4, pin_memory=True)
    batches = list(loader)
    assert all(batch.is_pinned() for batch in batches)
    assert [batch.sim(non_blocking=True).tolist() for batch in batches] == [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]
