import json
import sys

import numpy as np
import pytest

from compress.environment import Gpu
from compress.errors import DeviceUnavailable, ModelError
from compress.measure.resources.footprint import flops
from compress.measure.result_base import Score
from compress.measure.roofline import matmul_bench, roofline
from compress.measure.roofline.matmul_bench import CPU_KERNELS, Kernel, time_kernels, time_products, time_traffic
from compress.measure.roofline.roofline import (
    KernelRate,
    KernelRates,
    MachineLimits,
    cached_limits,
    machine_limits,
    rank_rates,
    shares_of_limits,
)
from compress.measure.timing.latency import Latency, Noise, Timing
from compress.measure.timing.worker_process import WorkerLost
from compress.model_folder.model_info import ShapeInfo

SHAPE = ShapeInfo(
    family="bert",
    hidden=64,
    heads=(4, 4),
    ffn=(128, 128),
    vocabulary=100,
    parameters=90_000,
    embedding_parameters=20_000,
    head_size=16,
)
FOUND = KernelRates(
    rates={
        "fp32": (
            KernelRate(value=2e11, kernel="best", size="1x1x1"),
            KernelRate(value=1e11, kernel="next", size="1x1x1"),
        ),
        "bandwidth": (KernelRate(value=1e10, kernel="copy", size="1 MiB"),),
    },
    missing={"torch _int_mm": "torch is needed here and is not installed."},
)


@pytest.fixture
def requests(tmp_path, monkeypatch):
    """Counts how often kernels were timed, and answers for them."""
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path))
    calls = []

    def answer(module, question, kind, patience):
        calls.append(question)
        return FOUND

    monkeypatch.setattr(roofline, "run_in_subprocess", answer)
    return calls


def test_limits_are_measured_once(requests):
    assert cached_limits(1) is None
    first = machine_limits(1)
    assert cached_limits(1) == first
    assert (first.fp32.kernel, first.bf16, first.bandwidth, first.bandwidth_kernel) == ("best", None, 1e10, "copy")
    assert (first.device, first.threads, first.missing) == ("cpu", 1, FOUND.missing)
    assert machine_limits(1) == first
    assert len(requests) == 1


def test_disturbed_limits_are_measured_again_up_to_a_maximum(requests, monkeypatch):
    looks = iter([(2e11, 0.5), (1e11, 0.3), (3e11, 0.4), (9e11, 0.0)])

    def answer(module, question, kind, patience):
        requests.append(question)
        value, load = next(looks)
        return KernelRates(
            rates={"fp32": (KernelRate(value=value, kernel="k", size=""),)}, noise=Noise(other_load=load)
        )

    monkeypatch.setattr(roofline, "run_in_subprocess", answer)
    first = machine_limits(1)
    assert first.unstable == "other work used 50% of its cores"
    assert first.measured_at
    assert cached_limits(1) is None  # an unstable value is none to rely on later
    assert [(machine_limits(1).fp32.value, len(requests)) for _ in range(4)] == [
        (2e11, 2),
        (3e11, 3),
        (3e11, 3),
        (3e11, 3),
    ]
    assert cached_limits(1) is None


def test_undisturbed_limits_replace_disturbed_ones(requests, monkeypatch):
    loads = iter([0.5, 0.0])

    def answer(module, question, kind, patience):
        return FOUND.model_copy(update={"noise": Noise(other_load=next(loads))})

    monkeypatch.setattr(roofline, "run_in_subprocess", answer)
    assert machine_limits(1).unstable
    assert machine_limits(1).looks == 2
    assert cached_limits(1) == machine_limits(1)


def test_an_accelerator_has_one_limit_for_any_number_of_threads(requests, monkeypatch):
    monkeypatch.setattr(roofline, "cuda_devices", lambda: (Gpu("An Accelerator", 2**30),))
    result = [machine_limits(threads, "cuda") for threads in (1, 4)]
    assert len(requests) == 1
    assert [each.threads for each in result] == [1, 4]
    assert cached_limits(4, "cuda") == result[1]
    assert (cached_limits(1), cached_limits(2, "cuda").threads) == (None, 2)


def test_other_libraries_have_other_limits(requests, monkeypatch):
    machine_limits(1)
    monkeypatch.setattr(roofline, "versions", lambda names: {"numpy": "99"})
    machine_limits(1)
    assert len(requests) == 2


@pytest.mark.parametrize("content", ["", "{", '{"device": "cpu"}'])
def test_unreadable_cache_is_measured_again(requests, tmp_path, content):
    machine_limits(1)
    [path] = (tmp_path / "limits").iterdir()
    path.write_text(content)
    machine_limits(1)
    assert len(requests) == 2
    assert json.loads(path.read_text())["device"] == "cpu"


def test_unwritable_cache_is_no_failure(requests, tmp_path, monkeypatch):
    (tmp_path / "limits").write_text("a file where the folder would be")
    assert machine_limits(1).fp32.kernel == "best"


def test_failed_process_is_reported_and_not_cached(requests, tmp_path, monkeypatch):
    def fail(module, question, kind, patience):
        raise WorkerLost("the process was killed by SIGKILL")

    monkeypatch.setattr(roofline, "run_in_subprocess", fail)
    with pytest.raises(ModelError, match="limits could not be measured: the process was killed by SIGKILL"):
        machine_limits(1)
    assert not (tmp_path / "limits").exists()


def test_more_threads_than_cores(requests):
    with pytest.raises(DeviceUnavailable, match="10000 threads were requested"):
        machine_limits(10_000)
    assert cached_limits(10_000) is None
    assert not requests


def test_missing_device_is_refused(requests, monkeypatch):
    monkeypatch.setattr(roofline, "cuda_devices", lambda: ())
    with pytest.raises(DeviceUnavailable, match="no CUDA device"):
        machine_limits(1, "cuda")


def timed(milliseconds, lengths):
    score = Score(value=milliseconds, low=milliseconds, high=milliseconds)
    timing = Timing(p50=score, p95=None, p99=None, spread=0.0, calls=1, round_medians=(milliseconds,))
    return Latency(status="measured", model=timing, lengths=lengths)


LIMITS = MachineLimits(
    device="cpu",
    device_name="x",
    threads=1,
    fp32=KernelRate(value=1e11, kernel="best", size=""),
    bandwidth=1e9,
    measured_at="",
    fingerprint="",
)


def test_shares_use_the_median_call():
    result = shares_of_limits(timed(1.0, (8, 16, 64)), SHAPE, LIMITS, "fp32", 360_000, 2)
    assert result.operations_per_second == pytest.approx(flops(SHAPE, 16, 2) / 1e-3)
    assert result.compute == pytest.approx(flops(SHAPE, 16, 2) / 1e-3 / 1e11)
    assert result.bandwidth == pytest.approx(4 * 70_000 / 1e-3 / 1e9)
    assert (result.kernel, result.reason) == ("best", None)


def test_bytes_read_are_limited_by_the_file():
    assert shares_of_limits(timed(1.0, (8,)), SHAPE, LIMITS, "fp32", 1000).bytes_per_second == pytest.approx(1e6)


def test_missing_inputs_of_shares_have_reasons():
    assert shares_of_limits(Latency(status="failed", reason="x"), SHAPE, LIMITS, "fp32", 1).reason == "it was not timed"
    assert "lengths" in shares_of_limits(timed(1.0, ()), SHAPE, LIMITS, "fp32", 1).reason
    other = shares_of_limits(timed(1.0, (8,)), SHAPE, LIMITS, "int8", 100_000)
    assert (other.compute, other.kernel, other.reason) == (None, None, "no int8 limit was measured")
    assert other.bandwidth is not None
    silent = SHAPE.model_copy(update={"head_size": None})
    assert "unknown" in shares_of_limits(timed(1.0, (8,)), silent, LIMITS, "fp32", 1).reason


def test_the_best_size_of_a_kernel_counts():
    kernel = Kernel("numpy", "fp32", CPU_KERNELS[0].make)
    rates, missing = time_products((kernel,), ((4, 4, 4), (64, 64, 64)), 1, 0.002)
    assert (len(rates), missing) == (4, {})
    [rate] = rank_rates(rates)["fp32"]
    assert rate.size == "64x64x64"
    assert rate.value == max(rate.value for _, rate in rates) > 0


def test_missing_kernel_has_a_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    result, missing = time_products(CPU_KERNELS, ((8, 8, 8),), 1, 0.0)
    assert {rate.kernel for _, rate in result} == {"numpy matmul"}
    assert set(missing) == {kernel.name for kernel in CPU_KERNELS} - {"numpy matmul"}
    assert "compress-encoders[train]" in missing["torch _int_mm"]


def test_failing_kernel_sets_no_limit():
    def make(size, threads):
        if size[0] > 4:
            raise RuntimeError("no kernel for this\nat all")
        return lambda: None

    result, missing = time_products((Kernel("odd", "fp32", make),), ((4, 4, 4), (8, 8, 8)), 1, 0.0)
    assert result == []
    assert missing == {"odd": "no kernel for this"}


def test_onnx_products_are_right():
    pytest.importorskip("onnx")
    left, right = matmul_bench.floats(3, 4), matmul_bench.floats(4, 5)
    [out] = matmul_bench.onnx_product("MatMul", left, right, 1)()
    np.testing.assert_allclose(out, left @ right, rtol=1e-5)
    small = np.arange(6, dtype=np.uint8).reshape(2, 3)
    signed = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    [out] = matmul_bench.onnx_product("MatMulInteger", small, signed, 1)()
    np.testing.assert_array_equal(out, small.astype(np.int32) @ signed.astype(np.int32))


def test_traffic_covers_reads_and_copies():
    result = time_traffic(2, 2**16, 0.0)
    assert [rate.kernel for rate in result] == ["numpy sum (reads)", "numpy copy (reads and writes)"]
    assert all(rate.value > 0 for rate in result)


def test_traffic_arrays_use_a_share_of_memory(monkeypatch):
    monkeypatch.setattr(matmul_bench, "memory_limit", lambda: 2**20)
    assert matmul_bench.traffic_bytes() == 2**20 // 16


@pytest.mark.slow
def test_limits_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path))
    result = machine_limits(1)
    assert result.fp32.value > 1e9
    assert result.int8.value > 1e9
    assert result.bandwidth > 1e8
    assert result.kernels["fp32"][0] == result.fp32
    assert cached_limits(1) == (None if result.unstable else result)


@pytest.mark.gpu
def test_limits_of_this_accelerator():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    result = time_kernels(matmul_bench.Task(device="cuda", threads=1))
    assert {"fp32", "bf16", "fp16", "int8", "bandwidth"} == set(result.rates)
    assert result.rates["bf16"][0].value > result.rates["fp32"][0].value
    assert result.rates["bandwidth"][0].value > 1e10
