// What pricing runs: the terms of one pass, arranged so that a step does the least work.
//
//  * affine terms of one gate, feature and slot become one line;
//  * terms that read one row count (and whether a graph holds the step) form a group, whose sums are
//  tabulated for the
//    row counts a step may have;
//  * what is left is evaluated term by term.
//
// A slot is a sum a term adds to: stage x (concurrent, serial) x resource. Sums depend on features alone, so
// that every way to price a batch gives the same bits.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "law.hpp"

namespace steppe {

// Resource totals in seconds, and the two figures that no sum of them gives.
struct Totals {
  std::array<double, kResources> resource{};
  double overlap = 0, draft = 0;
};
Estimate estimate(const Totals& totals, std::int64_t tokens) noexcept;

class Program {
 public:
  Program(const Plan& plan, std::span<const Entry> entries, std::size_t pass);

  // Adds `runs` equal runs of the pass. `slowed` is how much an SM budget slows what computes.
  void price(const Features& f, const Batch& batch, double slowed, double runs,
             Totals& totals) const noexcept;

 private:
  static constexpr std::size_t kSlotsAStage = 2 * kResources, kMaxHidden = 64;
  // Stages' slots, then the two sums each hidden term compares.
  using Sums = std::array<double, kMaxStages * kSlotsAStage + 2 * kMaxHidden>;

  struct Line {
    std::uint16_t gate, x, slot;
    bool derate;
    double constant, slope;
  };
  struct Work {
    Entry entry;
    std::uint16_t own, hbm;
    std::vector<std::uint16_t> sides;  // sums of hidden terms this one is part of
  };
  struct Part {
    std::vector<Line> lines;
    std::vector<Work> works;
    void add(const Features& f, const Batch& batch, double slowed, Sums& sums) const noexcept;
  };
  struct Group {
    std::uint16_t feature = 0;
    bool reads_unpadded = false;
    Part part;
    // The table: a row of sums for each row count `step` apart that a step may have.
    bool unpadded = false;  // the state of kUnpadded the rows hold for
    std::int32_t step = 1;
    std::vector<std::uint16_t> row_of;  // by count / step; 0 = none
    std::vector<std::uint16_t> slots;
    std::vector<double> rows;

    void add(const Features& f, const Batch& batch, double slowed, Sums& sums) const noexcept;
    const double* find(const Features& f) const noexcept;
    void tabulate(const FeaturePlan& plan);
  };
  struct Hidden {
    Entry entry;
    std::uint16_t own, hidden, behind;
  };

  std::uint16_t slot_of(const Entry& entry, Resource resource) const noexcept;
  Part& part_of(const Entry& entry);
  void place(const Entry& entry, std::vector<std::uint16_t> sides);
  void hide(const Entry& entry, std::vector<std::vector<std::uint16_t>>& sides);
  void compose(const Sums& sums, double runs, Totals& totals) const noexcept;

  std::uint16_t first_stage_ = 0;
  bool draft_ = false;
  std::size_t slots_ = 0;
  std::vector<double> layers_;  // of each stage
  std::vector<Group> groups_;
  Part rest_;
  std::vector<Hidden> hidden_;
};

}  // namespace steppe
