#pragma once

#include <optional>
#include <string>
#include <vector>

namespace moelane::tools {

// The rank and size that an MPI launcher gave this process in its environment, if one did.
struct LaunchedRank {
  int rank = 0, size = 1;
};
std::optional<LaunchedRank> rank_under_mpirun();

// Runs this program again, with the same arguments, as `ranks` ranks on this machine: replaces the process by
// mpirun, whose exit code is that of the ranks. Throws Error(transport) when there is no launcher that a
// plug-in is there for.
[[noreturn]] void start_mpi_ranks(int ranks, const std::vector<std::string>& arguments);

}  // namespace moelane::tools
