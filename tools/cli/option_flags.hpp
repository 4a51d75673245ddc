#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "cli/options.hpp"

// The flags of the commands: their names, help and values.
namespace moelane::tools {

// What is given, but cannot be put into Options before all flags are read.
struct UnfinishedOptions {
  int scale_block = 128;
  std::optional<int> max_tokens;
};

// Of run, bench and plan.
void add_job_options(CLI::App& app, Options& options, UnfinishedOptions& unfinished);
// Of every command.
void add_json_option(CLI::App& app, Options& options);
// What only bench or only plan is told.
void add_own_options(CLI::App& bench, CLI::App& plan, Options& options);

}  // namespace moelane::tools
