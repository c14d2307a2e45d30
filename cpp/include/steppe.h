/* Steppe from C: a serialized kernel that prices batches and sizes caches.
 *
 * A kernel comes from `Kernel.to_bytes()` in Python. It is immutable and may be shared between threads; a
 * running batch belongs to one thread at a time. Functions that can fail return STEPPE_OK or another status,
 * or NULL; the reason is steppe_last_error(), a text of the calling thread that stands until its next failing
 * call. Times are integer nanoseconds and sizes bytes, on one rank. Pricing neither allocates nor locks. */
#ifndef STEPPE_H
#define STEPPE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define STEPPE_API __attribute__((visibility("default")))
#else
#define STEPPE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A program compares STEPPE_ABI_VERSION, which it was built with, to steppe_abi_version() before anything
 * else. */
#define STEPPE_ABI_VERSION 1
STEPPE_API int steppe_abi_version(void);
STEPPE_API const char* steppe_version(void);

/* STEPPE_INVALID: an argument no call can mean (NULL, offsets that do not ascend, damaged bytes). */
enum {
  STEPPE_OK = 0,
  STEPPE_LENGTH_MISMATCH = 1,
  STEPPE_NEGATIVE_TOKENS = 2,
  STEPPE_NEGATIVE_SETTING = 3,
  STEPPE_BEYOND_MAX_LEN = 4,
  STEPPE_TOO_MANY_TOKENS = 5,
  STEPPE_DUPLICATE_REQUEST = 6,
  STEPPE_UNKNOWN_REQUEST = 7,
  STEPPE_INVALID = 100,
  STEPPE_NO_CACHES = 101,
  STEPPE_FAILED = 102
};
STEPPE_API const char* steppe_last_error(void);

/* Resources of resource_ns and bottleneck. */
enum { STEPPE_SM, STEPPE_HBM, STEPPE_NVLINK, STEPPE_NIC, STEPPE_HOST, STEPPE_RESOURCES };

typedef struct steppe_estimate {
  int64_t no_overlap_ns; /* sum of resource_ns */
  int64_t overlap_ns;    /* the resources of a layer side by side */
  int64_t resource_ns[STEPPE_RESOURCES];
  int64_t draft_ns; /* draft passes' share of no_overlap_ns */
  int64_t tokens;
  uint8_t bottleneck;
} steppe_estimate;

/* Kernels. */
typedef struct steppe_kernel steppe_kernel;
STEPPE_API steppe_kernel* steppe_kernel_load(const void* bytes, size_t size);
STEPPE_API steppe_kernel* steppe_kernel_open(const char* path); /* a file of such bytes */
STEPPE_API void steppe_kernel_free(steppe_kernel* kernel);
STEPPE_API const char* steppe_kernel_provenance(
    const steppe_kernel* kernel); /* JSON; lives as long as the kernel */

/* Batches. A request is a prefill when it schedules more than decode_threshold tokens. */
typedef struct steppe_settings {
  int32_t decode_threshold; /* 1 */
  int32_t sm_budget;        /* SMs left to the step; 0 = all */
  int32_t pad_tokens;       /* rows the data-parallel lockstep adds on this rank */
  int32_t group_tokens;     /* rows of all data-parallel ranks together; 0 = each runs as many as this */
} steppe_settings;
#define STEPPE_DEFAULT_SETTINGS {1, 0, 0, 0}

STEPPE_API int steppe_step_time(const steppe_kernel* kernel, const int32_t* scheduled,
                                const int32_t* computed, size_t requests, const steppe_settings* settings,
                                steppe_estimate* out);

/* Many batches: batch i holds requests offsets[i] to offsets[i+1]-1. `offsets` has batches+1 entries within
 * `requests`. On failure *failed (may be NULL) is the first batch that cannot be priced. */
STEPPE_API int steppe_step_times(const steppe_kernel* kernel, const int64_t* offsets, size_t batches,
                                 const int32_t* scheduled, const int32_t* computed, size_t requests,
                                 const steppe_settings* settings, steppe_estimate* out, unsigned threads,
                                 size_t* failed);

/* A decode batch kept from step to step. The kernel must outlive it. decode_threshold is the width: tokens
 * each request schedules a step. */
typedef struct steppe_running steppe_running;
STEPPE_API steppe_running* steppe_running_new(const steppe_kernel* kernel, const steppe_settings* settings);
STEPPE_API void steppe_running_free(steppe_running* batch);
STEPPE_API int steppe_running_add(steppe_running* batch, uint64_t id, int32_t computed);
STEPPE_API int steppe_running_remove(steppe_running* batch, uint64_t id);
STEPPE_API int steppe_running_advance(steppe_running* batch, int64_t tokens);
STEPPE_API size_t steppe_running_size(const steppe_running* batch);
STEPPE_API int64_t steppe_running_computed(const steppe_running* batch, uint64_t id); /* -1: not there */
STEPPE_API int steppe_running_price(steppe_running* batch, steppe_estimate* out);
typedef struct steppe_run_total {
  int64_t steps; /* steps priced before the end, or before the one that failed */
  int64_t no_overlap_ns, overlap_ns;
} steppe_run_total;
/* Runs `steps` steps, a token each; `each` (may be NULL) takes one estimate a step. */
STEPPE_API int steppe_running_run(steppe_running* batch, int64_t steps, steppe_estimate* each,
                                  steppe_run_total* total);

/* Caches of a rank; STEPPE_NO_CACHES where the kernel carries none. */
typedef struct steppe_sequence_bytes {
  int64_t growing;   /* caches that grow with the request */
  int64_t bounded;   /* windows and chunks */
  int64_t constant;  /* at any length: recurrent state, rings */
  int64_t admission; /* what the gate charges a waiting request */
} steppe_sequence_bytes;
STEPPE_API int steppe_kernel_sequence_bytes(const steppe_kernel* kernel, int64_t tokens,
                                            steppe_sequence_bytes* out);

typedef struct steppe_capacity {
  int64_t kv_bytes; /* what the rank has left for caches */
  int64_t bytes_per_block;
  int64_t num_blocks;      /* the null block included */
  int64_t capacity_tokens; /* of full-length requests */
  double max_concurrency;  /* full-length requests, as the engine logs it */
  int32_t fits;            /* one request of max_model_len fits */
} steppe_capacity;
STEPPE_API int steppe_kernel_capacity(const steppe_kernel* kernel, steppe_capacity* out);
/* Blocks the admission gate asks for a request of `tokens` known tokens; -1 on failure. */
STEPPE_API int64_t steppe_kernel_admission_blocks(const steppe_kernel* kernel, int64_t tokens);

#ifdef __cplusplus
}
#endif
#endif
