// The plan: a flat list of terms. A term is one law with its numbers, the features it reads, the resource it
// is charged to and a name a person reads. The resolver writes plans; the core evaluates them and knows
// neither models nor chips nor coefficient families.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "steppe/draft.hpp"
#include "steppe/estimate.hpp"
#include "steppe/features.hpp"

namespace steppe {

struct Term {
  std::string name;                   // "qkv", "attention decode", ...
  std::string law;                    // a name of laws_table()
  std::vector<double> params;         // in the order the law states
  std::vector<std::uint16_t> inputs;  // features, in the order the law states
  Resource resource = Resource::sm;
  std::uint16_t stage = 0;  // index into Plan::stages
  double count = 1;         // launches a layer
  bool serial = false;      // adds to its stage instead of overlapping with the other resources
  bool derate = false;      // slowed by an SM budget
};

// A layer kind, the head, or the work around them. Resources overlap inside a stage, stages never do.
struct Stage {
  std::string name;
  double layers = 1;
  std::uint16_t pass = 0;  // 0 = the target's forward, else a draft pass
};

struct Plan {
  FeaturePlan features;
  std::vector<Pass> passes{Pass{}};  // the first is the target's forward; drafts follow
  std::vector<Stage> stages;
  std::vector<Term> terms;
  std::int32_t sm_count = 0;  // SMs of the part; 0 = an SM budget never binds
};

inline constexpr std::size_t kMaxStages = 64, kMaxTerms = 1024, kMaxPasses = 16;

// Throws std::invalid_argument naming what is out of range; terms are checked when a kernel compiles them.
void validate(const Plan& plan);

// One law the core knows: its name, its parameters and the features it reads, in order.
struct LawInfo {
  const char* name;
  std::vector<const char*> params;
  std::vector<const char*> inputs;
};
const std::vector<LawInfo>& laws_table();

}  // namespace steppe
