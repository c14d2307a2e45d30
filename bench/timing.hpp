// A measure of nanoseconds a call: the best of many short runs, so that a busy machine biases it least.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace bench {

template <class T>
inline void keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

// Best ns a call over `runs` runs of about `run_us` microseconds each.
template <class Call>
double best_ns(Call&& call, int runs = 60, double run_us = 500) {
  using clock = std::chrono::steady_clock;
  const auto time = [&](std::int64_t calls) {
    const auto start = clock::now();
    for (std::int64_t i = 0; i < calls; ++i) call();
    return std::chrono::duration<double, std::nano>(clock::now() - start).count();
  };
  std::int64_t calls = 1;
  while (time(calls) < run_us * 1000 && calls < (std::int64_t{1} << 40)) calls *= 2;
  double best = 1e300;
  for (int run = 0; run < runs; ++run) best = std::min(best, time(calls) / static_cast<double>(calls));
  return best;
}

}  // namespace bench
