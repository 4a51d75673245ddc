#pragma once

#include <string>
#include <vector>

#include "cli/options.hpp"

namespace moelane::tools {

// `moelane run` and `moelane bench`: checks the input, starts the ranks and reports what they did.
// `arguments` are those of this program, for when a launcher has to start it again. The exit code.
int run_job(const Options& options, const std::vector<std::string>& arguments);

}  // namespace moelane::tools
