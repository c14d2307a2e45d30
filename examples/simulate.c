/* The loop of simulate.cpp through the C interface: the same traffic, the same steps, the same simulated
 * time.
 *
 *   simulate_c KERNEL [STEPS [REQUESTS_A_SECOND]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <steppe.h>
#include <time.h>

#include "workload.h"

enum { TOKEN_BUDGET = 2048, MAX_REQUESTS = 256, MAX_WAITING = 1 << 20 };

typedef struct request {
  uint64_t id;
  arrival asked;
  int64_t blocks;    /* admitted with */
  int32_t computed;  /* of the prompt */
  int64_t last_step; /* after which it leaves */
} request;

typedef struct simulation {
  steppe_kernel* kernel;
  steppe_running* decoding;
  double rate;
  uint64_t seed, next_id, finished;
  int64_t free_blocks, step, now, tokens;
  arrival arriving;
  request* waiting; /* a ring: arrivals beyond it are an error */
  size_t first_waiting, waiting_count;
  request prefilling[MAX_REQUESTS], running[MAX_REQUESTS];
  size_t prefilling_count, running_count;
} simulation;

static void check(int status) {
  if (status == STEPPE_OK) return;
  fprintf(stderr, "simulate_c: %s\n", steppe_last_error());
  exit(1);
}

static void take_arrivals(simulation* s) {
  while (s->arriving.at_ns <= s->now) {
    request r = {s->next_id++, s->arriving, 0, 0, 0};
    if (s->waiting_count == MAX_WAITING) {
      fprintf(stderr, "simulate_c: too many requests wait\n");
      exit(1);
    }
    s->waiting[(s->first_waiting + s->waiting_count++) % MAX_WAITING] = r;
    s->arriving = next_arrival(&s->seed, s->arriving.at_ns, s->rate);
  }
}

static void admit(simulation* s) {
  while (s->waiting_count > 0 && s->running_count + s->prefilling_count < MAX_REQUESTS) {
    request r = s->waiting[s->first_waiting];
    r.blocks = steppe_kernel_admission_blocks(s->kernel, r.asked.prompt + r.asked.output);
    if (r.blocks < 0) check(STEPPE_FAILED);
    if (r.blocks > s->free_blocks) return;
    s->free_blocks -= r.blocks;
    s->first_waiting = (s->first_waiting + 1) % MAX_WAITING;
    --s->waiting_count;
    s->prefilling[s->prefilling_count++] = r;
  }
}

static void take(simulation* s, int64_t steps, int64_t ns, int64_t tokens) {
  s->step += steps;
  s->now += ns;
  s->tokens += tokens;
}

static void mixed_step(simulation* s) {
  int32_t scheduled[MAX_REQUESTS], computed[MAX_REQUESTS], chunks[MAX_REQUESTS];
  int32_t budget = TOKEN_BUDGET - (int32_t)s->running_count;
  size_t n = 0, prefills = 0;
  for (; n < s->running_count; ++n) {
    scheduled[n] = 1;
    computed[n] = (int32_t)steppe_running_computed(s->decoding, s->running[n].id);
  }
  for (; prefills < s->prefilling_count; ++prefills, ++n) {
    const request* r = &s->prefilling[prefills];
    int32_t chunk = r->asked.prompt - r->computed;
    if (chunk > budget) chunk = budget;
    if (chunk <= 0) break;
    budget -= chunk;
    chunks[prefills] = scheduled[n] = chunk;
    computed[n] = r->computed;
  }
  steppe_estimate e;
  check(steppe_step_time(s->kernel, scheduled, computed, n, NULL, &e));
  take(s, 1, e.no_overlap_ns, e.tokens);
  check(steppe_running_advance(s->decoding, 1));
  size_t done = 0;
  for (; done < prefills; ++done) {
    request* r = &s->prefilling[done];
    r->computed += chunks[done];
    if (r->computed < r->asked.prompt) break;
    check(steppe_running_add(s->decoding, r->id, r->asked.prompt));
    r->last_step = s->step + r->asked.output;
    s->running[s->running_count++] = *r;
  }
  for (size_t i = done; i < s->prefilling_count; ++i) s->prefilling[i - done] = s->prefilling[i];
  s->prefilling_count -= done;
}

static void decode_run(simulation* s, int64_t left) {
  for (size_t i = 0; i < s->running_count; ++i) {
    if (s->running[i].last_step - s->step < left) left = s->running[i].last_step - s->step;
  }
  if (s->waiting_count > 0 || left == 1) {
    steppe_run_total total;
    check(steppe_running_run(s->decoding, left, NULL, &total));
    take(s, left, total.no_overlap_ns, left * (int64_t)s->running_count);
    return;
  }
  for (int64_t i = 0; i < left && s->now < s->arriving.at_ns; ++i) {
    steppe_estimate e;
    check(steppe_running_price(s->decoding, &e));
    check(steppe_running_advance(s->decoding, 1));
    take(s, 1, e.no_overlap_ns, e.tokens);
  }
}

static void finish(simulation* s) {
  for (size_t i = 0; i < s->running_count;) {
    if (s->running[i].last_step > s->step) {
      ++i;
      continue;
    }
    check(steppe_running_remove(s->decoding, s->running[i].id));
    s->free_blocks += s->running[i].blocks;
    s->running[i] = s->running[--s->running_count];
    ++s->finished;
  }
}

int main(int count, char** words) {
  if (count < 2 || steppe_abi_version() != STEPPE_ABI_VERSION) {
    fprintf(stderr, count < 2 ? "usage: simulate_c KERNEL [STEPS [REQUESTS_A_SECOND]]\n"
                              : "simulate_c: another libsteppe\n");
    return 2;
  }
  simulation* s = calloc(1, sizeof *s);
  s->waiting = malloc(MAX_WAITING * sizeof *s->waiting);
  s->kernel = steppe_kernel_open(words[1]);
  steppe_capacity capacity;
  check(s->kernel ? steppe_kernel_capacity(s->kernel, &capacity) : STEPPE_FAILED);
  s->decoding = steppe_running_new(s->kernel, NULL);
  s->seed = 1;
  s->rate = count > 3 ? atof(words[3]) : 8;
  s->free_blocks = capacity.num_blocks - 1; /* the null block is nobody's */
  s->arriving = next_arrival(&s->seed, 0, s->rate);
  const int64_t steps = count > 2 ? atoll(words[2]) : 1000000;

  struct timespec start, end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  while (s->step < steps) {
    take_arrivals(s);
    admit(s);
    if (s->prefilling_count > 0)
      mixed_step(s);
    else if (s->running_count > 0)
      decode_run(s, steps - s->step);
    else if (s->now < s->arriving.at_ns)
      s->now = s->arriving.at_ns;
    finish(s);
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  const double seconds = (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
  printf("%lld steps, %llu requests finished, %lld tokens in %.1f simulated s; %zu running, %zu waiting\n",
         (long long)s->step, (unsigned long long)s->finished, (long long)s->tokens, (double)s->now / 1e9,
         s->running_count + s->prefilling_count, s->waiting_count);
  printf("%.2f million steps a second (%.0f ns a step)\n", (double)s->step / seconds / 1e6,
         seconds / (double)s->step * 1e9);
  steppe_running_free(s->decoding);
  steppe_kernel_free(s->kernel);
  free(s->waiting);
  free(s);
  return 0;
}
