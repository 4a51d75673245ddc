#pragma once

#include <string>
#include <vector>

#include "transport/mpi/api.hpp"

namespace moelane::mpi {

// The MPI library that this process belongs to: the one that is loaded already, or that a launcher's
// variables tell of, or that MOELANE_MPI names ("openmpi", "mpich"); else whichever plug-in loads first.
// Loaded once, for good; MPI is ended when the process exits. Throws Error(transport) that says what was
// looked for and where.
const Api& loaded_api();

// The names of the libraries that this installation has plug-ins for, in order of preference.
std::vector<std::string> plugins();

// A world ended while peers had not: the process leaves MPI without its farewell, which would wait for them.
void left_in_discord();

}  // namespace moelane::mpi
