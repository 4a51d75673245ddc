#pragma once

#include "routing/input_file.hpp"
#include "routing/routing.hpp"

namespace moelane::tools {

// Reads an ESFT text trace: one prompt a line, the expert ids of its tokens one after the other, then their
// weights. Refuses what is not allowed.
Routing read_esft_routing(const InputFile& file, int experts, int topk);

}  // namespace moelane::tools
