#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "moelane/config.hpp"

// Ways of storing rows, of which the fastest makes the floor.
namespace moelane::tools {

// (to, how many, from, bytes): one row to several places.
using CopyRow = std::function<void(void* const*, int, const void*, std::size_t)>;
// (rows, how many, out, bytes of a row, bytes of the output): several rows read, one written.
using SumRows = std::function<void(const void* const*, int, void*, std::size_t, std::size_t)>;

std::vector<std::pair<std::string, CopyRow>> ways_to_copy();
// `config` must stay.
std::vector<std::pair<std::string, SumRows>> ways_to_sum(const Config& config);

}  // namespace moelane::tools
