/* The traffic both simulations serve: Poisson arrivals of random prompts and outputs, the same on every
 * machine. */
#ifndef STEPPE_EXAMPLES_WORKLOAD_H
#define STEPPE_EXAMPLES_WORKLOAD_H

#include <math.h>
#include <stdint.h>

typedef struct arrival {
  int64_t at_ns;
  int32_t prompt, output; /* tokens */
} arrival;

static inline uint64_t next_random(uint64_t* state) { /* splitmix64 */
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static inline arrival next_arrival(uint64_t* state, int64_t after_ns, double requests_a_second) {
  const double uniform = ((double)(next_random(state) >> 11) + 1) / 9007199254740993.0;
  arrival a;
  a.at_ns = after_ns + (int64_t)(-log(uniform) / requests_a_second * 1e9);
  a.prompt = (int32_t)(64 + next_random(state) % 1985);
  a.output = (int32_t)(16 + next_random(state) % 497);
  return a;
}

#endif
