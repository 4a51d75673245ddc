#pragma once

#include <string>

#include "moelane/error.hpp"

namespace moelane::tools {

// 2 for bad input, 1 for a wrong result, 3 for a transport that failed; and the verdict's word.
int exit_code_of(const Error& error);
std::string verdict_of(const Error& error);

// The cause before its consequences: a wrong result, then bad input, then a death, then what peers of a
// failed rank saw. The larger, the nearer to the cause.
int severity(int exit_code, const std::string& verdict);

}  // namespace moelane::tools
