#pragma once

#include <cstdint>
#include <string>

#include "moelane/config.hpp"
#include "routing/workload.hpp"

namespace moelane::tools {

enum class Command { run, bench, plan, doctor };

// A rank that misbehaves before the dispatch of a step (from 1): die:RANK@STEP or stall:RANK@STEP:SECONDS.
struct Injection {
  bool die = false;
  int rank = -1, step = 0;
  double seconds = 0;
};

// Everything that `moelane run` and its siblings are told; checked, with the defaults filled in.
struct Options {
  Command command = Command::run;
  int ranks = 8;
  bool ranks_given = false;
  bool launched = false;  // this process is one rank of somebody's launcher (RANK, WORLD_SIZE; mpirun)
  bool reports = true;    // this process writes the result: in a launched world, rank 0
  Config config;          // complete but for symmetric_bytes
  TokenRange tokens{128, 128};
  std::string routing = "uniform";
  std::string placement = "contiguous";
  std::string transport = "auto";
  bool processes = false;  // peer: a process for each rank; shm always has them, threads never
  bool graph = false;      // peer: calls are captured in CUDA graphs, and replayed
  bool split = false;
  bool accumulate = false;
  std::int32_t capacity = 0;  // rows of each expert (padded) or in all; filled in when not given
  int steps = 3;
  int warmup = 2;  // bench
  bool baseline = false;
  double memory_gbs = 20, link_gbs = 450;  // plan: bandwidths of a rank
  Injection injection;
  std::uint64_t seed = 1;
  std::string json, trace;
  bool quiet = false;

  bool padded() const { return config.layout == Layout::padded; }
  bool over_mpi() const { return transport == "mpi"; }
  bool on_cards() const { return transport == "peer"; }
  bool threads() const { return transport == "threads" || (on_cards() && !processes && !launched); }
};

}  // namespace moelane::tools
