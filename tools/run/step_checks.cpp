#include "run/step_checks.hpp"

#include <fmt/format.h>

#include <set>

#include "reference/compare_dispatch.hpp"
#include "reference/expected_combine.hpp"
#include "reference/expected_dispatch.hpp"
#include "report/digest.hpp"
#include "run/dispatched_rows.hpp"

namespace moelane::tools {

void StepChecks::add(const Difference& difference, const std::string& where, const char* what) {
  if (difference.bytes == 0) return;
  if (report_.mismatches == 0) {
    report_.verdict = "mismatch";
    report_.exit_code = 1;
    report_.sentence =
        fmt::format("rank {}, {}: {} differs from the reference: {}", rank_, where, what, difference.first);
  }
  report_.mismatches += difference.bytes;
}

void StepChecks::dispatch(const std::string& where, const std::vector<GroupStep>& groups,
                          const StepBuffers& buffers) {
  const Config& c = options_.config;
  const auto expected = expected_dispatch(c, placement_.rank_of(), rank_, groups, options_.capacity);
  add(compare_dispatch(c, placement_.rank_of(), rank_, groups, expected, buffers.view(options_)), where,
      "the dispatch output");
  report_.dispatch_digests.push_back(digest_dispatch(options_, placement_.local_experts(rank_), buffers));
  report_.rows_dispatched += static_cast<std::int64_t>(expected.rows.size());
  count_load(groups[static_cast<std::size_t>(rank_ / c.tp_size)], buffers.counts.as<std::int32_t>());
}

void StepChecks::combine(const std::string& where, const GroupStep& own, const std::byte* old,
                         const StepBuffers& buffers) {
  const Config& c = options_.config;
  const std::vector<std::byte> expected = expected_combine(c, placement_.rank_of(), own, old, {});
  const auto* got = buffers.out.as<std::byte>();
  Difference difference;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == got[i] || difference.bytes++ > 0) continue;
    const std::size_t element = i / size_of(c.out_dtype), hidden = static_cast<std::size_t>(c.hidden);
    difference.first = fmt::format("token {}, element {}", element / hidden, element % hidden);
  }
  add(difference, where, "the combined output");
  report_.combine_digests.push_back(digest_bytes(got, expected.size(), 0));
  report_.tokens_combined += own.tokens;
}

void StepChecks::count_load(const GroupStep& own, const std::int32_t* counts) {
  const auto experts = placement_.experts_of(rank_);
  for (std::size_t local = 0; local < experts.size(); ++local) {
    report_.rows[static_cast<std::size_t>(experts[local])] += counts[local];
  }
  const Config& c = options_.config;
  if (rank_ % c.tp_size != 0) return;  // a group's routing is counted once
  for (int t = 0; t < own.tokens; ++t) {
    std::set<std::int32_t> ranks;
    for (int k = 0; k < c.topk; ++k) {
      const std::int32_t id = own.ids[static_cast<std::size_t>(t * c.topk + k)];
      if (id >= 0) ranks.insert(placement_.rank_of()[static_cast<std::size_t>(id)]);
    }
    report_.rank_visits += static_cast<std::int64_t>(ranks.size());
    ++report_.tokens_routed;
  }
}

}  // namespace moelane::tools
