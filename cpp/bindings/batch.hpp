// The batch as Python holds it: owns its arrays, prepared once, priced many times.
#pragma once

#include <vector>

#include "bindings.hpp"

namespace steppe::bindings {

struct OwnedBatch {
  std::vector<std::int32_t> scheduled, computed;
  std::int32_t decode_threshold, sm_budget, pad_tokens, group_tokens;

  Batch view() const noexcept {
    return {scheduled, computed, decode_threshold, sm_budget, pad_tokens, group_tokens};
  }
};

// A 1-D integer array as int32; raises steppe.Error naming `what` for another dtype, shape or range.
std::vector<std::int32_t> tokens_of(const pybind11::object& values, const char* what);
// An integer setting as int32.
std::int32_t setting_of(const pybind11::object& value, const char* what);

}  // namespace steppe::bindings
