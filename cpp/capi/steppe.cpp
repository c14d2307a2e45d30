#include "steppe.h"

#include <cstddef>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <string>

#include "steppe/bulk.hpp"
#include "steppe/memory.hpp"
#include "steppe/running.hpp"
#include "steppe/serialize.hpp"

using steppe::Batch;
using steppe::Estimate;
using steppe::Status;

struct steppe_kernel {
  steppe::Kernel kernel;
  steppe::Stored stored;  // its plan lives in the kernel
};
struct steppe_running {
  steppe::RunningBatch batch;
};

namespace {

// Estimates cross the border in place.
static_assert(sizeof(steppe_estimate) == sizeof(Estimate) && alignof(steppe_estimate) == alignof(Estimate));
static_assert(offsetof(steppe_estimate, resource_ns) == offsetof(Estimate, resource_ns));
static_assert(offsetof(steppe_estimate, tokens) == offsetof(Estimate, tokens));
static_assert(offsetof(steppe_estimate, bottleneck) == offsetof(Estimate, bottleneck));
static_assert(STEPPE_RESOURCES == steppe::kResources);
static_assert(STEPPE_UNKNOWN_REQUEST == static_cast<int>(Status::unknown_request));

Estimate* inside(steppe_estimate* e) { return reinterpret_cast<Estimate*>(e); }

std::string& error_text() {
  static thread_local std::string text;
  return text;
}
int fail(int status, const std::string& why) {
  try {
    error_text() = why;
  } catch (const std::bad_alloc&) {
    error_text().clear();
  }
  return status;
}
int invalid(const char* why) { return fail(STEPPE_INVALID, why); }
int status_of(Status status) {
  return status == Status::ok ? STEPPE_OK : fail(static_cast<int>(status), steppe::describe(status));
}

// Runs `call`, which may throw; what it throws becomes a status.
template <class Call>
int guarded(Call&& call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return fail(STEPPE_FAILED, "out of memory");
  } catch (const std::exception& e) {
    return fail(STEPPE_INVALID, e.what());
  }
}
template <class T, class Make>
T* made(Make&& make) noexcept {
  T* out = nullptr;
  guarded([&] {
    out = make();
    return STEPPE_OK;
  });
  return out;
}

steppe_kernel* load(std::span<const std::uint8_t> bytes) {
  steppe::Stored stored = steppe::deserialize(bytes);
  steppe::Kernel kernel(std::move(stored.plan));
  return new steppe_kernel{std::move(kernel), std::move(stored)};
}

constexpr steppe_settings kDefaults = STEPPE_DEFAULT_SETTINGS;

}  // namespace

int steppe_abi_version(void) { return STEPPE_ABI_VERSION; }
const char* steppe_version(void) { return STEPPE_VERSION; }
const char* steppe_last_error(void) { return error_text().c_str(); }

steppe_kernel* steppe_kernel_load(const void* bytes, size_t size) {
  return made<steppe_kernel>([&] {
    if (!bytes) throw std::invalid_argument("bytes is NULL");
    return load({static_cast<const std::uint8_t*>(bytes), size});
  });
}

steppe_kernel* steppe_kernel_open(const char* path) {
  return made<steppe_kernel>([&] {
    if (!path) throw std::invalid_argument("path is NULL");
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::invalid_argument(std::string("cannot read ") + path);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
    return load({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  });
}

void steppe_kernel_free(steppe_kernel* kernel) { delete kernel; }

const char* steppe_kernel_provenance(const steppe_kernel* kernel) {
  return kernel ? kernel->stored.provenance.c_str() : "";
}

int steppe_step_time(const steppe_kernel* kernel, const int32_t* scheduled, const int32_t* computed,
                     size_t requests, const steppe_settings* settings, steppe_estimate* out) {
  if (!kernel || !out || (requests > 0 && (!scheduled || !computed))) return invalid("an argument is NULL");
  const steppe_settings& s = settings ? *settings : kDefaults;
  const Batch batch{{scheduled, requests}, {computed, requests}, s.decode_threshold,
                    s.sm_budget,           s.pad_tokens,         s.group_tokens};
  return status_of(kernel->kernel.step_time(batch, *inside(out)));
}

int steppe_step_times(const steppe_kernel* kernel, const int64_t* offsets, size_t batches,
                      const int32_t* scheduled, const int32_t* computed, size_t requests,
                      const steppe_settings* settings, steppe_estimate* out, unsigned threads,
                      size_t* failed) {
  if (!kernel || !offsets || (batches > 0 && !out) || (requests > 0 && (!scheduled || !computed))) {
    return invalid("an argument is NULL");
  }
  const steppe_settings& s = settings ? *settings : kDefaults;
  const steppe::Batches rows{{offsets, batches + 1},   {scheduled, requests}, {computed, requests},
                             {{}, s.decode_threshold}, {{}, s.sm_budget},     {{}, s.pad_tokens},
                             {{}, s.group_tokens}};
  if (const char* why = rows.objection()) return invalid(why);
  return guarded([&] {
    const steppe::BulkStatus done =
        steppe::step_times(kernel->kernel, rows, {inside(out), batches}, threads > 0 ? threads : 1);
    if (done.status == Status::ok) return STEPPE_OK + 0;
    if (failed) *failed = done.batch;
    return fail(static_cast<int>(done.status),
                "batch " + std::to_string(done.batch) + ": " + steppe::describe(done.status));
  });
}

steppe_running* steppe_running_new(const steppe_kernel* kernel, const steppe_settings* settings) {
  return made<steppe_running>([&] {
    if (!kernel) throw std::invalid_argument("kernel is NULL");
    const steppe_settings& s = settings ? *settings : kDefaults;
    return new steppe_running{steppe::RunningBatch(
        kernel->kernel, {s.decode_threshold, s.sm_budget, s.pad_tokens, s.group_tokens})};
  });
}

void steppe_running_free(steppe_running* batch) { delete batch; }

int steppe_running_add(steppe_running* batch, uint64_t id, int32_t computed) {
  if (!batch) return invalid("batch is NULL");
  return guarded([&] { return status_of(batch->batch.add(id, computed)); });
}
int steppe_running_remove(steppe_running* batch, uint64_t id) {
  return batch ? status_of(batch->batch.remove(id)) : invalid("batch is NULL");
}
int steppe_running_advance(steppe_running* batch, int64_t tokens) {
  return batch ? status_of(batch->batch.advance(tokens)) : invalid("batch is NULL");
}
size_t steppe_running_size(const steppe_running* batch) { return batch ? batch->batch.size() : 0; }
int64_t steppe_running_computed(const steppe_running* batch, uint64_t id) {
  return batch ? batch->batch.computed(id) : -1;
}
int steppe_running_price(steppe_running* batch, steppe_estimate* out) {
  return batch && out ? status_of(batch->batch.price(*inside(out))) : invalid("an argument is NULL");
}
int steppe_running_run(steppe_running* batch, int64_t steps, steppe_estimate* each, steppe_run_total* total) {
  if (!batch || !total || steps < 0) return invalid("batch or total is NULL, or steps negative");
  steppe::RunTotal sums;
  const Status status =
      batch->batch.price_run(steps, {inside(each), each ? static_cast<std::size_t>(steps) : 0}, sums);
  *total = {sums.steps, sums.no_overlap_ns, sums.overlap_ns};
  return status_of(status);
}

int steppe_kernel_sequence_bytes(const steppe_kernel* kernel, int64_t tokens, steppe_sequence_bytes* out) {
  if (!kernel || !out) return invalid("an argument is NULL");
  if (!kernel->stored.caches) return fail(STEPPE_NO_CACHES, "the kernel carries no caches");
  return guarded([&] {
    const steppe::CachePool& pool = *kernel->stored.caches;
    *out = {pool.bytes(pool.growing_blocks(tokens)), pool.bytes(pool.bounded_blocks(tokens)),
            pool.bytes(pool.constant_blocks()), pool.bytes(pool.admission_blocks(tokens))};
    return STEPPE_OK + 0;
  });
}

int steppe_kernel_capacity(const steppe_kernel* kernel, steppe_capacity* out) {
  if (!kernel || !out) return invalid("an argument is NULL");
  if (!kernel->stored.caches || kernel->stored.kv_bytes < 0)
    return fail(STEPPE_NO_CACHES, "the kernel carries no cache budget");
  return guarded([&] {
    const steppe::CachePool& pool = *kernel->stored.caches;
    const std::vector<std::int64_t> budget(pool.bytes_per_block().size(), kernel->stored.kv_bytes);
    const steppe::CacheCapacity got = steppe::cache_capacity(pool, budget);
    *out = {kernel->stored.kv_bytes, pool.bytes_per_block().at(0), got.num_blocks,
            got.capacity_tokens,     got.max_concurrency,          got.fits ? 1 : 0};
    return STEPPE_OK + 0;
  });
}

int64_t steppe_kernel_admission_blocks(const steppe_kernel* kernel, int64_t tokens) {
  if (!kernel || !kernel->stored.caches) {
    fail(STEPPE_NO_CACHES, "the kernel carries no caches");
    return -1;
  }
  std::int64_t blocks = -1;
  guarded([&] {
    blocks = kernel->stored.caches->admission_blocks(tokens);
    return STEPPE_OK + 0;
  });
  return blocks;
}
