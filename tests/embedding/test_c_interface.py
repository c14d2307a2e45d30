"""libsteppe through ctypes: the same prices and caches as Python's, and a reason for every refusal."""

from __future__ import annotations

import ctypes as c
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import kernel_named

import steppe

RESOURCES = 5


class Estimate(c.Structure):
    """steppe_estimate."""

    _fields_ = [  # noqa: RUF012
        ("no_overlap_ns", c.c_int64),
        ("overlap_ns", c.c_int64),
        ("resource_ns", c.c_int64 * RESOURCES),
        ("draft_ns", c.c_int64),
        ("tokens", c.c_int64),
        ("bottleneck", c.c_uint8),
    ]

    def row(self) -> tuple[int, ...]:
        """As a row of ESTIMATE_DTYPE."""
        figures = (self.no_overlap_ns, self.overlap_ns, *self.resource_ns)
        return (*figures, self.draft_ns, self.tokens, self.bottleneck)


class Settings(c.Structure):
    """steppe_settings."""

    _fields_ = [(name, c.c_int32) for name in ("decode_threshold", "sm_budget", "pad_tokens", "group_tokens")]  # noqa: RUF012


class RunTotal(c.Structure):
    """steppe_run_total."""

    _fields_ = [(name, c.c_int64) for name in ("steps", "no_overlap_ns", "overlap_ns")]  # noqa: RUF012


class SequenceBytes(c.Structure):
    """steppe_sequence_bytes."""

    _fields_ = [(name, c.c_int64) for name in ("growing", "bounded", "constant", "admission")]  # noqa: RUF012


class Capacity(c.Structure):
    """steppe_capacity."""

    _fields_ = [  # noqa: RUF012
        *[(name, c.c_int64) for name in ("kv_bytes", "bytes_per_block", "num_blocks", "capacity_tokens")],
        ("max_concurrency", c.c_double),
        ("fits", c.c_int32),
    ]


@pytest.fixture(scope="module")
def lib() -> Any:
    """The library, with the types ctypes cannot guess."""
    lib = c.CDLL(steppe.get_library())
    for name in ("steppe_version", "steppe_last_error", "steppe_kernel_provenance"):
        getattr(lib, name).restype = c.c_char_p
    for name in ("steppe_kernel_load", "steppe_kernel_open", "steppe_running_new"):
        getattr(lib, name).restype = c.c_void_p
    for name in ("steppe_kernel_admission_blocks", "steppe_running_computed"):
        getattr(lib, name).restype = c.c_int64
    lib.steppe_running_size.restype = c.c_size_t
    lib.steppe_kernel_provenance.argtypes = [c.c_void_p]
    lib.steppe_kernel_free.argtypes = lib.steppe_running_free.argtypes = [c.c_void_p]
    return lib


class Loaded:
    """A kernel on both sides of the border."""

    def __init__(self, lib: Any, kernel: steppe.Kernel) -> None:
        self.lib, self.kernel = lib, kernel
        data = kernel.to_bytes()
        self.handle = c.c_void_p(lib.steppe_kernel_load(data, c.c_size_t(len(data))))
        assert self.handle

    def error(self) -> str:
        """The reason of the last refusal."""
        return str(self.lib.steppe_last_error().decode())

    def price(self, scheduled: Any, computed: Any, settings: Settings | None = None) -> tuple[int, Estimate]:
        """Status and estimate of one batch."""
        now, past = np.asarray(scheduled, np.int32), np.asarray(computed, np.int32)
        e = Estimate()
        given = c.byref(settings) if settings else None
        status = self.lib.steppe_step_time(
            self.handle, pointer(now), pointer(past), c.c_size_t(len(now)), given, c.byref(e)
        )
        return status, e


def pointer(array: Any) -> Any:
    """The array's memory."""
    return array.ctypes.data_as(c.c_void_p)


@pytest.fixture(params=["dense", "latent dcp", "sparse", "drafting"])
def loaded(lib: Any, request: pytest.FixtureRequest) -> Any:
    """A few kernels."""
    loaded = Loaded(lib, kernel_named(request.param))
    yield loaded
    lib.steppe_kernel_free(loaded.handle)


def rows(kernel: steppe.Kernel, scheduled: Any, computed: Any, **settings: int) -> tuple[int, ...]:
    """The batch as one row of `step_times`."""
    return tuple(kernel.step_times([0, len(scheduled)], scheduled, computed, **settings)[0].tolist())


def test_versions(lib: Any) -> None:
    assert lib.steppe_abi_version() == 1
    assert lib.steppe_version().decode() == steppe.__version__


def test_one_batch(loaded: Loaded) -> None:
    for scheduled, computed, settings in (
        ([1] * 30, range(0, 3000, 100), {}),
        ([2048, 1, 1], [0, 900, 40], {"sm_budget": 60}),
        ([4, 4], [100, 7], {"decode_threshold": 4, "pad_tokens": 3, "group_tokens": 99}),
        ([], [], {}),
    ):
        given = Settings(**({"decode_threshold": 1} | settings))
        status, e = loaded.price(scheduled, list(computed), given if settings else None)
        assert status == 0
        assert e.row() == rows(loaded.kernel, scheduled, list(computed), **settings)


def test_many_batches(loaded: Loaded) -> None:
    offsets = np.arange(0, 1001, 5, dtype=np.int64)
    scheduled, computed = np.ones(1000, np.int32), np.arange(1000, dtype=np.int32) * 9
    out = np.zeros(200, steppe.ESTIMATE_DTYPE)
    failed = c.c_size_t(0)

    def price(past: Any, requests: int = 1000) -> int:
        return int(
            loaded.lib.steppe_step_times(
                loaded.handle,
                pointer(offsets),
                c.c_size_t(200),
                pointer(scheduled),
                pointer(past),
                c.c_size_t(requests),
                None,
                pointer(out),
                c.c_uint(2),
                c.byref(failed),
            )
        )

    assert price(computed) == 0
    assert (out == loaded.kernel.step_times(offsets, scheduled, computed)).all()
    wrong = computed.copy()
    wrong[333] = -4
    assert price(wrong) == 2
    assert failed.value == 66
    assert loaded.error().startswith("batch 66: ")
    assert price(computed, requests=999) == 100
    assert "beyond" in loaded.error()


def test_a_running_batch(loaded: Loaded) -> None:
    lib = loaded.lib
    batch = c.c_void_p(lib.steppe_running_new(loaded.handle, None))
    twin = loaded.kernel.running_batch()
    for request in range(20):
        assert lib.steppe_running_add(batch, c.c_uint64(request), c.c_int32(50 * request)) == 0
        twin.add(request, 50 * request)
    assert lib.steppe_running_add(batch, c.c_uint64(3), c.c_int32(1)) == 6
    assert "already" in loaded.error()
    e, total, each = Estimate(), RunTotal(), (Estimate * 40)()
    assert lib.steppe_running_price(batch, c.byref(e)) == 0
    assert e.no_overlap_ns == twin.price().no_overlap
    assert lib.steppe_running_run(batch, c.c_int64(40), each, c.byref(total)) == 0
    assert [each[i].row() for i in range(40)] == [tuple(row.tolist()) for row in twin.price_run(40)]
    assert lib.steppe_running_run(batch, c.c_int64(7), None, c.byref(total)) == 0
    assert (total.steps, total.no_overlap_ns, total.overlap_ns) == (7, *twin.run_total(7))
    assert lib.steppe_running_advance(batch, c.c_int64(100)) == 0
    assert lib.steppe_running_remove(batch, c.c_uint64(4)) == 0
    assert lib.steppe_running_remove(batch, c.c_uint64(4)) == 7
    assert lib.steppe_running_size(batch) == 19
    assert lib.steppe_running_computed(batch, c.c_uint64(5)) == 250 + 147
    assert lib.steppe_running_computed(batch, c.c_uint64(4)) == -1
    lib.steppe_running_free(batch)
    assert not lib.steppe_running_new(loaded.handle, c.byref(Settings(0, 0, 0, 0)))
    assert "width" in loaded.error()


def test_caches(loaded: Loaded) -> None:
    kernel, got, capacity = loaded.kernel, SequenceBytes(), Capacity()
    assert loaded.lib.steppe_kernel_sequence_bytes(loaded.handle, c.c_int64(5000), c.byref(got)) == 0
    assert got.growing == kernel.sequence_variable_bytes(5000)
    assert got.bounded == kernel.sequence_bounded_bytes_at(5000)
    assert got.constant == kernel.sequence_fixed_bytes()
    assert got.admission == kernel.sequence_admission_bytes(5000)
    blocks = loaded.lib.steppe_kernel_admission_blocks(loaded.handle, c.c_int64(5000))
    assert kernel.caches is not None
    assert blocks == kernel.caches.admission_blocks(5000)
    assert loaded.lib.steppe_kernel_admission_blocks(loaded.handle, c.c_int64(2**62)) == -1
    assert loaded.lib.steppe_kernel_capacity(loaded.handle, c.byref(capacity)) == 0
    assert capacity.kv_bytes == kernel.memory.kv_budget_bytes()
    assert capacity.fits == 1
    expected = kernel.kv_capacity()
    assert capacity.num_blocks == expected.num_blocks
    assert capacity.bytes_per_block == expected.bytes_per_block
    assert capacity.max_concurrency == pytest.approx(expected.max_concurrency)


def test_provenance(loaded: Loaded) -> None:
    text = loaded.lib.steppe_kernel_provenance(loaded.handle)
    assert json.loads(text) == json.loads(json.dumps(loaded.kernel.provenance()))


def test_damaged_bytes_and_missing_files(lib: Any, tmp_path: Path) -> None:
    data = bytearray(kernel_named("dense").to_bytes())
    path = tmp_path / "kernel.bin"
    path.write_bytes(data)
    handle = lib.steppe_kernel_open(str(path).encode())
    assert handle
    lib.steppe_kernel_free(handle)
    data[100] ^= 1
    assert not lib.steppe_kernel_load(bytes(data), c.c_size_t(len(data)))
    assert "checksum" in lib.steppe_last_error().decode()
    assert not lib.steppe_kernel_load(None, c.c_size_t(0))
    assert not lib.steppe_kernel_open(str(tmp_path / "absent").encode())
    assert "cannot read" in lib.steppe_last_error().decode()


def test_null_is_refused(lib: Any) -> None:
    size = c.c_size_t(1)
    assert lib.steppe_step_time(None, None, None, size, None, None) == 100
    assert lib.steppe_step_times(None, None, size, None, None, size, None, None, 1, None) == 100
    assert lib.steppe_running_price(None, None) == 100
    assert lib.steppe_running_add(None, c.c_uint64(1), 1) == 100
    assert lib.steppe_running_run(None, c.c_int64(1), None, None) == 100
    assert lib.steppe_kernel_capacity(None, None) == 100
    assert not lib.steppe_running_new(None, None)
    lib.steppe_kernel_free(None)
    lib.steppe_running_free(None)
