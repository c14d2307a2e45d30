// The figures of a batch against their definitions, counted one query and one token at a time.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "steppe/features.hpp"

using namespace steppe;

namespace {

// Queries one by one: each sees what came before it and itself, a window at most; half of itself is masked
// work.
double pairs_by_query(std::int64_t s, std::int64_t c, std::int64_t window) {
  double pairs = 0;
  for (std::int64_t query = 1; query <= s; ++query) {
    const std::int64_t before = c + query;
    if (window > 0 && before > window) {
      pairs += static_cast<double>(window);
    } else {
      pairs += static_cast<double>(before) - 0.5;
    }
  }
  return pairs;
}

// Tokens dealt in stripes to ranks in turn, one by one; what the fullest rank holds.
std::int64_t fullest_rank(std::int64_t tokens, std::int32_t dcp, std::int32_t stripe) {
  std::vector<std::int64_t> held(static_cast<std::size_t>(dcp));
  for (std::int64_t t = 0; t < tokens; ++t) ++held[static_cast<std::size_t>(t / stripe % dcp)];
  return *std::max_element(held.begin(), held.end());
}

struct Piece {
  std::int64_t at, size;
};
// Ranks' pieces of a chunk under prefill-context parallelism: cut in 2*pcp, rank r takes r and the r-th from
// the end.
std::vector<std::vector<Piece>> dealt(std::int64_t s, std::int32_t pcp) {
  const std::int64_t size = (s + 2 * pcp - 1) / (2 * pcp);
  std::vector<Piece> cut;
  for (std::int64_t at = 0, i = 0; i < 2 * pcp; ++i, at += size) {
    cut.push_back({std::min(at, s), std::max<std::int64_t>(0, std::min(size, s - at))});
  }
  std::vector<std::vector<Piece>> ranks;
  for (std::int32_t r = 0; r < pcp; ++r) {
    const auto first = static_cast<std::size_t>(r), second = static_cast<std::size_t>(2 * pcp - 1 - r);
    ranks.push_back({cut[first], cut[second]});
  }
  return ranks;
}

struct Made {
  std::vector<std::int32_t> scheduled, computed;
  Batch batch(std::int32_t threshold = 1) const { return {scheduled, computed, threshold}; }
};

Made random_batch(std::mt19937& random, std::size_t size, bool decodes_only = false) {
  Made made;
  for (std::size_t i = 0; i < size; ++i) {
    const std::uint32_t kind = random() % 5;
    made.scheduled.push_back(decodes_only || kind < 3 ? 1
                             : kind == 3              ? 0
                                                      : static_cast<std::int32_t>(random() % 700));
    made.computed.push_back(static_cast<std::int32_t>(random() % 3 ? random() % 5000 : 0));
  }
  return made;
}

Features features_of(const Batch& batch, const FeaturePlan& plan) {
  Features f;
  CHECK(aggregate(batch, plan, f) == Status::ok);
  return f;
}

}  // namespace

TEST(pairs_of_a_chunk_are_the_pairs_of_its_queries) {
  for (const std::int64_t window : {0, 1, 2, 7, 64, 1000}) {
    for (std::int64_t s = 0; s <= 80; ++s) {
      for (const std::int64_t c : {0, 1, 5, 6, 7, 8, 63, 64, 65, 500, 999, 1000, 1001}) {
        CHECK(std::fabs(causal_pairs(s, c, window) - pairs_by_query(s, c, window)) < 1e-6);
      }
    }
  }
}

TEST(a_window_that_never_binds_is_no_window) {
  for (std::int64_t s = 1; s < 50; ++s) CHECK(causal_pairs(s, 100, 100 + s) == causal_pairs(s, 100, 0));
}

// A query that sees x tokens ranks x/4 pooled keys at the square of their number: the integral of (x/4)^2.
TEST(ranking_is_the_square_of_the_keys_between_two_bounds) {
  CHECK(std::fabs(ranked_rows(100, 0, 4, 8) - (512.0 - 64) / 48) < 1e-12);
  CHECK(ranked_rows(4, 0, 4, 8) == 0);   // never more than top-k
  CHECK(ranked_rows(50, 8, 4, 8) == 0);  // all beyond the last
  CHECK(ranked_rows(50, 0, 8, 8) == 0 && ranked_rows(50, 0, 9, 8) == 0);
  for (std::int64_t cut = 0; cut <= 30; ++cut) {  // a chunk in two is the chunk whole
    CHECK(std::fabs(ranked_rows(cut, 3, 5, 20) + ranked_rows(30 - cut, 3 + cut, 5, 20) -
                    ranked_rows(30, 3, 5, 20)) < 1e-9);
  }
  FeaturePlan plan;
  plan.pairs = {{.figure = PairFigure::ranked, .window = 20, .select = 5}};
  const std::vector<std::int32_t> scheduled{30, 1, 6}, computed{3, 8, 0};
  CHECK(features_of({scheduled, computed}, plan)[kFixedFeatures] ==
        ranked_rows(30, 3, 5, 20) + ranked_rows(6, 0, 5, 20));
}

TEST(a_shard_is_what_the_fullest_rank_holds) {
  for (const std::int32_t dcp : {1, 2, 3, 4, 8}) {
    for (const std::int32_t stripe : {1, 2, 16, 64}) {
      for (std::int64_t tokens = 1; tokens <= 700; ++tokens) {
        CHECK(shard_tokens(tokens, dcp, stripe) == fullest_rank(tokens, dcp, stripe));
      }
      CHECK(shard_tokens(0, dcp, stripe) == 0);
    }
  }
}

TEST(a_captured_size_is_the_first_that_holds_the_rows) {
  const std::vector<std::int32_t> sizes{1, 2, 4, 8, 16, 24, 256, 272, 512};
  for (std::int64_t rows = 0; rows <= 600; ++rows) {
    std::int64_t want = 0;
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
      if (*size >= rows) want = *size;
    }
    CHECK(captured_size(rows, sizes) == want);
  }
  CHECK(captured_size(5, {}) == 0);
}

TEST(counts_of_a_batch) {
  std::mt19937 random(11);
  FeaturePlan plan;
  plan.uniform_width = 1;
  plan.funnel = 3;
  for (int i = 0; i < 200; ++i) {
    const Made made = random_batch(random, random() % 50);
    const std::int32_t threshold = static_cast<std::int32_t>(random() % 3 ? 1 : random() % 600);
    std::int64_t scheduled = 0, requests = 0, decodes = 0, decode_tokens = 0, context = 0, chunk = 0, any = 0;
    bool uniform = true;
    for (std::size_t r = 0; r < made.scheduled.size(); ++r) {
      const std::int64_t s = made.scheduled[r], c = made.computed[r];
      if (s == 0) continue;
      ++requests;
      scheduled += s;
      any += c;
      uniform = uniform && s == 1;
      if (s <= threshold) {
        ++decodes;
        decode_tokens += s;
        context = std::max(context, s + c);
      } else {
        chunk = std::max(chunk, s);
      }
    }
    Batch batch = made.batch(threshold);
    batch.pad_tokens = i % 4 ? 0 : 9;
    const Features f = features_of(batch, plan);
    const auto is = [&f](Feature feature, std::int64_t want) {
      return f[feature] == static_cast<double>(want);
    };
    const std::int64_t rows = scheduled + batch.pad_tokens;
    CHECK(is(kTokens, rows) && is(kPaddedTokens, rows) && is(kScheduled, scheduled));
    CHECK(is(kRequests, requests) && is(kDecodes, decodes) && is(kPrefills, requests - decodes));
    CHECK(is(kDecodeTokens, decode_tokens) && is(kPrefillTokens, scheduled - decode_tokens));
    CHECK(is(kContextRows, any > 0 ? rows : 0));
    CHECK(is(kMaxContext, context) && is(kMaxChunk, chunk));
    CHECK(is(kSampledRows, decode_tokens + requests - decodes));
    CHECK(is(kGroupRows, 3 * rows) && is(kUnpadded, 1));
    CHECK(f.uniform == uniform);
    batch.group_tokens = 40;
    CHECK(features_of(batch, plan)[kGroupRows] ==
          static_cast<double>(rows > 0 ? std::max<std::int64_t>(40, rows) : 0));
  }
}

TEST(reads_are_bounded_pooled_and_sharded_request_by_request) {
  std::mt19937 random(12);
  for (int i = 0; i < 60; ++i) {
    const Made made = random_batch(random, 1 + random() % 60, i % 2 == 0);
    for (const std::int64_t limit : {INT64_MAX, std::int64_t{128}, std::int64_t{2048}}) {
      for (const std::int64_t ratio : {0, 4, 128}) {
        for (const std::int32_t dcp : {1, 4}) {
          FeaturePlan plan;
          plan.reads = {{.limit = limit, .tail_ratio = ratio, .dcp = dcp, .interleave = 16}};
          double want = 0;
          for (std::size_t r = 0; r < made.scheduled.size(); ++r) {
            if (made.scheduled[r] != 1) continue;
            const std::int64_t context = made.computed[r] + 1, seen = std::min(context, limit);
            double read = static_cast<double>(seen);
            if (ratio > 0) read += static_cast<double>(context - seen) / static_cast<double>(ratio);
            want += dcp > 1 ? static_cast<double>(
                                  fullest_rank(std::max<std::int64_t>(1, std::llround(read)), dcp, 16))
                            : read;
          }
          CHECK(std::fabs(features_of(made.batch(), plan)[kFixedFeatures] - want) < 1e-6 * (1 + want));
        }
      }
    }
  }
}

TEST(a_scorer_reads_pooled_states_sharded_once) {
  const std::vector<std::int32_t> scheduled(10, 1), computed{5, 9, 100, 7, 0, 3, 2, 1000, 64, 63};
  FeaturePlan plan;
  plan.reads = {{.divide = 4}, {.divide = 4, .dcp = 4, .interleave = 2, .shard_sum = true}};
  const std::int64_t context = std::accumulate(computed.begin(), computed.end(), std::int64_t{10});
  const Features f = features_of({scheduled, computed}, plan);
  CHECK(f[kFixedFeatures] == static_cast<double>(context) / 4);
  CHECK(f[kFixedFeatures + 1] ==
        static_cast<double>(fullest_rank(std::llround(static_cast<double>(context) / 4), 4, 2)));
}

TEST(figures_of_prefills) {
  std::mt19937 random(13);
  FeaturePlan plan;
  plan.pairs = {{.figure = PairFigure::pairs},
                {.figure = PairFigure::pairs, .window = 100},
                {.figure = PairFigure::pairs, .select = 50},
                {.figure = PairFigure::pairs, .ratio = 4},
                {.figure = PairFigure::visible},
                {.figure = PairFigure::visible, .window = 100, .slack = 28},
                {.figure = PairFigure::context},
                {.figure = PairFigure::chunked, .slack = 64}};
  for (int i = 0; i < 60; ++i) {
    const Made made = random_batch(random, random() % 20);
    std::array<double, 8> want{};
    for (std::size_t r = 0; r < made.scheduled.size(); ++r) {
      const std::int64_t s = made.scheduled[r], c = made.computed[r], end = s + c;
      if (s <= 1) continue;
      want[0] += pairs_by_query(s, c, 0);
      want[1] += pairs_by_query(s, c, 100);
      want[2] += pairs_by_query(s, c, 50);
      want[3] += pairs_by_query(s, c, 0) / 4;
      want[4] = std::max(want[4], static_cast<double>(end));
      want[5] = std::max(want[5], static_cast<double>(std::min<std::int64_t>(end, 128)));
      want[6] += c > 0 ? static_cast<double>(end) : 0;
      want[7] += static_cast<double>(std::max<std::int64_t>(s, 64));
    }
    const Features f = features_of(made.batch(), plan);
    for (int figure = 0; figure < 8; ++figure) {
      CHECK(std::fabs(f[kFixedFeatures + figure] - want[static_cast<std::size_t>(figure)]) <=
            1e-9 * want[static_cast<std::size_t>(figure)] + 1e-6);
    }
  }
}

TEST(chunks_are_split_over_prefill_context_ranks) {
  for (const std::int32_t pcp : {2, 3, 4}) {
    for (const bool replicate : {false, true}) {
      for (const std::int64_t window : {0, 90}) {
        FeaturePlan plan;
        plan.pcp = pcp;
        plan.replicate_short_chunks = replicate;
        plan.pairs = {{.window = window}};
        for (std::int32_t s = 2; s < 150; ++s) {
          for (const std::int32_t c : {0, 70}) {
            const auto ranks = dealt(s, pcp);
            // With decode-context parallelism a chunk whose last piece is empty or partial runs whole on
            // every rank.
            const bool whole = replicate && (2 * pcp - 1) * ((s + 2 * pcp - 1) / (2 * pcp)) >= s;
            std::int64_t tokens = 0;
            double pairs = 0;
            for (const auto& pieces : ranks) {
              std::int64_t own = 0;
              double own_pairs = 0;
              for (const Piece& piece : pieces) {
                own += piece.size;
                own_pairs += pairs_by_query(piece.size, c + piece.at, window);
              }
              tokens = std::max(tokens, own);
              pairs = std::max(pairs, own_pairs);
            }
            const std::vector<std::int32_t> scheduled{s, 1}, computed{c, 33};
            const Features f = features_of({scheduled, computed}, plan);
            CHECK(f[kTokens] == static_cast<double>((whole ? s : tokens) + 1));
            CHECK(f[kPrefillTokens] == static_cast<double>(whole ? s : tokens));
            CHECK(std::fabs(f[kFixedFeatures] - (whole ? pairs_by_query(s, c, window) : pairs)) < 1e-6);
            CHECK(f[kScheduled] == s + 1);
          }
        }
      }
    }
  }
}

TEST(rows_are_padded_to_a_captured_size) {
  FeaturePlan plan;
  plan.pad_to_capture = true;
  plan.capture_sizes = {1, 2, 4, 8, 16};
  for (std::int32_t rows = 1; rows < 20; ++rows) {
    const std::vector<std::int32_t> scheduled(static_cast<std::size_t>(rows), 1),
        computed(static_cast<std::size_t>(rows), 9);
    const Features f = features_of({scheduled, computed}, plan);
    const std::int64_t size = captured_size(rows, plan.capture_sizes);
    CHECK(f[kTokens] == rows);
    CHECK(f[kPaddedTokens] == static_cast<double>(size > 0 ? size : rows));
    CHECK((f[kUnpadded] > 0) == (rows > 16));
  }
}

TEST(every_status_describes_itself) {
  std::vector<std::string> seen;
  for (const Status status : {Status::ok, Status::length_mismatch, Status::negative_tokens,
                              Status::negative_setting, Status::beyond_max_len, Status::too_many_tokens,
                              Status::duplicate_request, Status::unknown_request}) {
    const std::string text = describe(status);
    CHECK(!text.empty() && text != "unknown status");
    CHECK(std::find(seen.begin(), seen.end(), text) == seen.end());
    seen.push_back(text);
  }
  CHECK(std::string(describe(static_cast<Status>(200))) == "unknown status");
}
