// Times a serialized kernel on batches of a text file and prints JSON, nanoseconds a call.
//
//   pricing KERNEL BATCHES [THREADS]          every case
//   pricing KERNEL BATCHES --repeat NAME N    one case N times and nothing else, to count instructions of
//
// A line of BATCHES: name, decode_threshold, sm_budget, then scheduled:computed of each request. Every call
// sees contexts a little longer than the one before, so that nothing learns a batch by heart.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <sstream>
#include <steppe/bulk.hpp>
#include <steppe/running.hpp>
#include <steppe/serialize.hpp>
#include <string>
#include <vector>

#include "timing.hpp"

namespace {

using namespace steppe;

constexpr std::size_t kVariants = 16;

// A batch and its variants with longer contexts.
class Case {
 public:
  explicit Case(const std::string& line) {
    std::istringstream words(line);
    words >> name >> threshold_ >> budget_;
    std::int32_t scheduled, computed;
    char colon;
    while (words >> scheduled >> colon >> computed) {
      scheduled_.push_back(scheduled);
      for (std::size_t v = 0; v < kVariants; ++v) {
        computed_[v].push_back(computed + (scheduled == 1 ? static_cast<std::int32_t>(3 * v) : 0));
      }
    }
  }
  Batch next() noexcept {
    turn_ = (turn_ + 1) % kVariants;
    return {scheduled_, computed_[turn_], threshold_, budget_};
  }
  std::string name;

 private:
  std::int32_t threshold_ = 1, budget_ = 0;
  std::vector<std::int32_t> scheduled_;
  std::array<std::vector<std::int32_t>, kVariants> computed_;
  std::size_t turn_ = 0;
};

// Decodes at contexts from 500 up, `stride` apart.
std::vector<std::int32_t> contexts(std::size_t count, std::int32_t stride) {
  std::vector<std::int32_t> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = 500 + static_cast<std::int32_t>(i) % 4096 * stride;
  return out;
}

RunningBatch running(const Kernel& kernel, std::size_t requests) {
  RunningBatch batch(kernel);
  const std::vector<std::int32_t> computed = contexts(requests, 13);
  for (std::size_t i = 0; i < requests; ++i) (void)batch.add(i, computed[i]);
  return batch;
}

// Everything that is not a batch of the file, by name: ns a call or a step or a batch.
std::map<std::string, double> others(const Kernel& kernel, const Plan& plan, unsigned threads) {
  std::map<std::string, double> ns;
  for (const std::size_t requests : {64u, 256u, 1024u}) {
    RunningBatch batch = running(kernel, requests);
    std::int64_t steps = 0;
    const auto step = [&] {
      Estimate e;
      if (batch.price(e) != Status::ok || batch.advance() != Status::ok || ++steps % 4000 == 0) {
        batch = running(kernel, requests);  // back to short contexts
      }
      bench::keep(e);
    };
    ns["running_" + std::to_string(requests)] = bench::best_ns(step);
  }
  RunningBatch batch = running(kernel, 256);
  ns["running_256_leave_and_join"] = bench::best_ns([&, id = std::uint64_t{0}]() mutable {
    (void)batch.remove(id);
    (void)batch.add(id, 700);
    id = (id + 1) % 256;
  });

  // Each run prices the next slice of a table far larger than the caches.
  constexpr std::size_t batches = 262'144, slice = 16'384, size = 64;
  std::vector<std::int64_t> offsets(batches + 1);
  for (std::size_t i = 0; i <= batches; ++i) offsets[i] = static_cast<std::int64_t>(i * size);
  const std::vector<std::int32_t> scheduled(batches * size, 1), computed = contexts(batches * size, 3);
  std::vector<Estimate> out(batches);
  for (unsigned t = 1; t <= threads; ++t) {
    std::size_t at = 0;
    const auto call = [&] {
      const Batches some{std::span(offsets).subspan(at, slice + 1), scheduled, computed};
      bench::keep(step_times(kernel, some, std::span(out).subspan(at, slice), t));
      at = (at + slice) % batches;
    };
    ns["bulk_64_threads_" + std::to_string(t)] = bench::best_ns(call, 100) / slice;
  }
  ns["build"] = bench::best_ns([&] { bench::keep(Kernel(plan)); }, 12);
  return ns;
}

std::vector<Case> cases_of(const char* path) {
  std::vector<Case> cases;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) cases.emplace_back(line);
  return cases;
}

}  // namespace

int main(int count, char** words) try {
  if (count < 3) {
    std::fprintf(stderr, "usage: pricing KERNEL BATCHES [THREADS | --repeat NAME N]\n");
    return 2;
  }
  std::ifstream file(words[1], std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  const Stored stored = deserialize({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  const Kernel kernel(stored.plan);
  std::vector<Case> cases = cases_of(words[2]);
  const auto price = [&](Case& each) {
    Estimate e;
    if (kernel.step_time(each.next(), e) != Status::ok)
      throw std::runtime_error(each.name + " cannot be priced");
    bench::keep(e);
  };
  if (count == 6 && std::string(words[3]) == "--repeat") {
    const long calls = std::atol(words[5]);
    for (Case& each : cases) {
      if (each.name != words[4]) continue;
      for (long i = 0; i < calls; ++i) price(each);
    }
    return 0;
  }
  std::printf("{\"stages\": %zu, \"terms\": %zu", stored.plan.stages.size(), stored.plan.terms.size());
  for (Case& each : cases)
    std::printf(", \"%s\": %.1f", each.name.c_str(), bench::best_ns([&] { price(each); }));
  for (const auto& [name, ns] :
       others(kernel, stored.plan, count > 3 ? static_cast<unsigned>(std::atoi(words[3])) : 1)) {
    std::printf(", \"%s\": %.1f", name.c_str(), ns);
  }
  std::printf("}\n");
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "pricing: %s\n", e.what());
  return 1;
}
