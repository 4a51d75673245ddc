#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "cli/parse_options.hpp"
#include "cli/run_job.hpp"
#include "launch/mpi_launch.hpp"
#include "machine/cards.hpp"
#include "machine/doctor.hpp"
#include "moelane/error.hpp"
#include "plan/plan.hpp"
#include "report/verdict.hpp"

namespace moelane::tools {
namespace {

int run_command(const Options& options, const std::vector<std::string>& arguments) {
  switch (options.command) {
    case Command::run:
    case Command::bench:
      return run_job(options, arguments);
    case Command::plan:
      return plan(options);
    case Command::doctor:
      return doctor(options);
  }
  return 3;
}

int main_checked(int argc, char** argv) {
  const auto options = parse_options(argc, argv);
  if (!options) return 0;
  prepare_cuda(options->threads());
  const int code = run_command(*options, {argv + 1, argv + argc});
  // A result that nobody can read is no result.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout.flush()) {
    throw Error(ErrorKind::argument,
                fmt::format("standard output is full or closed, allowed is one that can be "
                            "written, or --quiet: {}",
                            std::strerror(errno)));
  }
  return code;
}

}  // namespace
}  // namespace moelane::tools

int main(int argc, char** argv) {
  try {
    return moelane::tools::main_checked(argc, argv);
  } catch (const moelane::Error& error) {
    const auto launched = moelane::tools::rank_under_mpirun();
    if (launched && launched->rank > 0 && error.kind() == moelane::ErrorKind::argument) {
      return 2;  // all say the same
    }
    fmt::print(stderr, "moelane: {}\n", error.what());
    return moelane::tools::exit_code_of(error);
  } catch (const std::exception& error) {
    fmt::print(stderr, "moelane: {}\n", error.what());
    return 3;
  }
}
