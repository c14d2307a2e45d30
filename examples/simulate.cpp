// Continuous batching as a discrete-event loop: requests arrive, are admitted while KV blocks are free,
// prefill in chunks beside the running decodes, decode a token a step and leave. The clock moves by what the
// kernel says a step takes.
//
//   simulate KERNEL [STEPS [REQUESTS_A_SECOND]]
//
// Steps that only decode come from the running batch; while nothing arrives, prefills or finishes, a whole
// run of them is priced in one call.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <fstream>
#include <iterator>
#include <queue>
#include <steppe/memory.hpp>
#include <steppe/running.hpp>
#include <steppe/serialize.hpp>
#include <vector>

#include "workload.h"

namespace {

constexpr std::int32_t kTokenBudget = 2048;  // scheduled a step at most
constexpr std::size_t kMaxRequests = 256;

struct Request {
  std::uint64_t id;
  arrival asked;
  std::int64_t blocks = 0;    // admitted with
  std::int32_t computed = 0;  // of the prompt
};

struct Finish {
  std::int64_t step;  // after which the request leaves
  Request request;
  friend bool operator>(const Finish& a, const Finish& b) { return a.step > b.step; }
};

class Simulation {
 public:
  Simulation(const steppe::Stored& stored, double rate)
      : kernel_(stored.plan), decoding_(kernel_), rate_(rate) {
    if (!stored.caches) throw std::invalid_argument("the kernel carries no caches to count");
    pool_ = &*stored.caches;
    const std::vector<std::int64_t> budget(pool_->bytes_per_block().size(), stored.kv_bytes);
    free_blocks_ = steppe::cache_capacity(*pool_, budget).usable_blocks;
    arriving_ = next_arrival(&seed_, 0, rate_);
  }

  void run(std::int64_t steps) {
    while (step_ < steps) {
      take_arrivals();
      admit();
      if (!prefilling_.empty()) {
        mixed_step();
      } else if (decoding_.size() > 0) {
        decode_run(steps - step_);
      } else {
        now_ = std::max(now_, arriving_.at_ns);  // idle until the next request
      }
      finish();
    }
  }

  void report(double seconds) const {
    std::printf(
        "%lld steps, %llu requests finished, %lld tokens in %.1f simulated s; %zu running, %zu waiting\n",
        static_cast<long long>(step_), static_cast<unsigned long long>(finished_),
        static_cast<long long>(tokens_), static_cast<double>(now_) / 1e9,
        decoding_.size() + prefilling_.size(), waiting_.size());
    std::printf("%.2f million steps a second (%.0f ns a step)\n", static_cast<double>(step_) / seconds / 1e6,
                seconds / static_cast<double>(step_) * 1e9);
  }

 private:
  void take_arrivals() {
    while (arriving_.at_ns <= now_) {
      waiting_.push_back({next_id_++, arriving_});
      arriving_ = next_arrival(&seed_, arriving_.at_ns, rate_);
    }
  }

  // A request holds, from the start, the blocks its whole length will need: nothing is ever preempted.
  void admit() {
    while (!waiting_.empty() && decoding_.size() + prefilling_.size() < kMaxRequests) {
      Request request = waiting_.front();
      request.blocks = pool_->admission_blocks(request.asked.prompt + request.asked.output);
      if (request.blocks > free_blocks_) return;
      free_blocks_ -= request.blocks;
      waiting_.pop_front();
      prefilling_.push_back(request);
    }
  }

  // The decodes, and as much of the prompts as the budget holds.
  void mixed_step() {
    std::int32_t budget = kTokenBudget - static_cast<std::int32_t>(decoding_.size());
    scheduled_.assign(decoding_.size(), 1);
    computed_.clear();
    for (const std::uint64_t id : ids_)
      computed_.push_back(static_cast<std::int32_t>(decoding_.computed(id)));
    std::vector<std::int32_t>& chunks = chunks_;
    chunks.clear();
    for (const Request& request : prefilling_) {
      const std::int32_t chunk = std::min(budget, request.asked.prompt - request.computed);
      if (chunk <= 0) break;
      budget -= chunk;
      chunks.push_back(chunk);
      scheduled_.push_back(chunk);
      computed_.push_back(request.computed);
    }
    steppe::Estimate e;
    price(kernel_.step_time({scheduled_, computed_}, e));
    take(1, e.no_overlap_ns, e.tokens);
    check(decoding_.advance());
    for (const std::int32_t chunk : chunks) {
      Request& request = prefilling_.front();
      request.computed += chunk;
      if (request.computed < request.asked.prompt) break;
      start_decoding(request);
      prefilling_.pop_front();
    }
  }

  // Decode steps until someone finishes or arrives, or the simulation ends.
  void decode_run(std::int64_t left) {
    const std::int64_t steps = std::min(left, leaving_.top().step - step_);
    if (waiting_.size() > 0 || steps == 1) {
      steppe::RunTotal total;
      price(decoding_.price_run(steps, {}, total));
      take(steps, total.no_overlap_ns, steps * static_cast<std::int64_t>(decoding_.size()));
      return;
    }
    for (std::int64_t i = 0; i < steps && now_ < arriving_.at_ns; ++i) {
      steppe::Estimate e;
      price(decoding_.price(e));
      check(decoding_.advance());
      take(1, e.no_overlap_ns, e.tokens);
    }
  }

  void start_decoding(const Request& request) {
    check(decoding_.add(request.id, request.asked.prompt));
    ids_.push_back(request.id);
    leaving_.push({step_ + request.asked.output, request});
  }

  void finish() {
    while (!leaving_.empty() && leaving_.top().step <= step_) {
      const Request request = leaving_.top().request;
      leaving_.pop();
      check(decoding_.remove(request.id));
      ids_.erase(std::find(ids_.begin(), ids_.end(), request.id));
      free_blocks_ += request.blocks;
      ++finished_;
    }
  }

  void take(std::int64_t steps, std::int64_t ns, std::int64_t tokens) {
    step_ += steps;
    now_ += ns;
    tokens_ += tokens;
  }
  static void check(steppe::Status status) {
    if (status != steppe::Status::ok) throw std::runtime_error(steppe::describe(status));
  }
  static void price(steppe::Status status) { check(status); }

  steppe::Kernel kernel_;
  steppe::RunningBatch decoding_;
  const steppe::CachePool* pool_ = nullptr;
  double rate_;
  std::uint64_t seed_ = 1, next_id_ = 0, finished_ = 0;
  std::int64_t free_blocks_ = 0, step_ = 0, now_ = 0, tokens_ = 0;
  arrival arriving_{};
  std::deque<Request> waiting_, prefilling_;
  std::priority_queue<Finish, std::vector<Finish>, std::greater<>> leaving_;
  std::vector<std::uint64_t> ids_;
  std::vector<std::int32_t> scheduled_, computed_, chunks_;
};

}  // namespace

int main(int count, char** words) try {
  if (count < 2) {
    std::fprintf(stderr, "usage: simulate KERNEL [STEPS [REQUESTS_A_SECOND]]\n");
    return 2;
  }
  std::ifstream file(words[1], std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  const steppe::Stored stored =
      steppe::deserialize({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  Simulation simulation(stored, count > 3 ? std::atof(words[3]) : 8);
  const auto start = std::chrono::steady_clock::now();
  simulation.run(count > 2 ? std::atoll(words[2]) : 1'000'000);
  simulation.report(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "simulate: %s\n", e.what());
  return 1;
}
