#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/options.hpp"
#include "moelane/error.hpp"
#include "moelane/world.hpp"

namespace moelane::tools {

// Begin and end of a phase, CLOCK_MONOTONIC: one machine, so comparable between ranks.
struct Span {
  std::int64_t begin = 0, end = 0;
};

// What one rank did: numbers for the report, and what went wrong. Travels from a rank's process to the parent
// as JSON.
struct RankReport {
  int rank = -1;
  std::string verdict = "verified";  // or a word for what failed
  std::string sentence;              // of the failure
  int exit_code = 0;
  // By step: the parts of dispatch and of combine (whole: one, split: send and recv).
  std::vector<std::vector<Span>> dispatch, combine;
  std::vector<std::uint64_t> dispatch_digests, combine_digests;  // by step
  std::vector<std::int64_t> rows;  // dispatched to this rank, by expert (all steps)
  std::int64_t rows_dispatched = 0, tokens_combined = 0, mismatches = 0, rank_visits = 0, tokens_routed = 0;
  std::uint64_t dispatch_bytes = 0, combine_bytes = 0;  // moved by this rank, all steps
  std::uint64_t heap_bytes = 0, mapped_bytes = 0;
  std::string way;
  nlohmann::json trace = nlohmann::json::array();
  nlohmann::json extra = nlohmann::json::object();  // bench: floors and baselines, by rank
};

// Memory that all ranks share, mapped before they start: what floors and baselines move bytes through.
struct Arena {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
};

// One rank's work. Throws Error; whatever `report` holds by then is kept.
using RankMain = std::function<void(World world, const Arena& arena, RankReport& report)>;

// Plays the ranks as threads or as processes (or is one of a launcher's) and gathers their reports, in rank
// order. A rank that vanished has a report that says so. Prints a rank's sentence as soon as it fails; about
// bad input only one, for all ranks. In a launched world each rank gets all reports, or its own alone if it
// failed.
std::vector<RankReport> play_ranks(const Options& options, std::size_t arena_bytes, const RankMain& main);

// Thrown by an injected death, in the transport where a rank is a thread.
struct InjectedDeath {
  std::string sentence;
};

// Thrown by a rank that stops, without a fault of its own, because another rank's input is bad and says so.
struct Stopped {
  std::string sentence;
};

// The injected stall of a rank. Once all other ranks have ended without success nobody needs to see more of
// it: a process is then ended by its parent, a thread by an InjectedDeath.
void stall(int rank, double seconds);

nlohmann::json to_json(const RankReport& report);
RankReport from_json(const nlohmann::json& json);

// 2 for bad input, 1 for a wrong result, 3 for a transport that failed; and the verdict's word.
int exit_code_of(const Error& error);
std::string verdict_of(const Error& error);

}  // namespace moelane::tools
