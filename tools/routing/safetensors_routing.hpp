#pragma once

#include <string>

#include "routing/input_file.hpp"
#include "routing/routing.hpp"

// Routing in a safetensors file: topk_ids and topk_weights, both [N, topk].
namespace moelane::tools {

bool looks_like_safetensors(const InputFile& file);

// Refuses what is not allowed.
Routing read_safetensors_routing(const InputFile& file, int experts, int topk);

// Writes `routing` so that open_routing can read it (I32 and F32). Throws Error(argument).
void write_safetensors_routing(const std::string& path, const Routing& routing);

}  // namespace moelane::tools
