#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "run/timing.hpp"

namespace moelane::tools {

// What one rank did: numbers for the report, and what went wrong. Travels from a rank's process to the parent
// as JSON.
struct RankReport {
  int rank = -1;
  std::string verdict = "verified";  // or a word for what failed
  std::string sentence;              // of the failure
  int exit_code = 0;
  // By step: the parts of dispatch and of combine (whole: one, split: send and recv).
  std::vector<std::vector<TimeSpan>> dispatch, combine;
  std::vector<std::uint64_t> dispatch_digests, combine_digests;  // by step
  std::vector<std::int64_t> rows;  // dispatched to this rank, by expert (all steps)
  std::int64_t rows_dispatched = 0, tokens_combined = 0, mismatches = 0, rank_visits = 0, tokens_routed = 0;
  std::uint64_t dispatch_bytes = 0, combine_bytes = 0;  // moved by this rank, all steps
  std::uint64_t heap_bytes = 0, mapped_bytes = 0;
  std::string way;
  nlohmann::json trace = nlohmann::json::array();
  nlohmann::json extra = nlohmann::json::object();  // bench: floors and baselines, by rank
};

nlohmann::json to_json(const RankReport& report);
RankReport from_json(const nlohmann::json& json);

}  // namespace moelane::tools
