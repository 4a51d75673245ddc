#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace moelane::test {

// The folder of real traces; without it a test is skipped, or fails where traces are required.
inline std::filesystem::path traces() {
  namespace fs = std::filesystem;
  const char* given = std::getenv("MOELANE_TRACES");
  fs::path folder = given != nullptr ? fs::path(given) : fs::path(MOELANE_SOURCE_DIR) / "../shared/traces";
  if (fs::is_directory(folder)) return folder;
  const char* require = std::getenv("MOELANE_REQUIRE");
  EXPECT_EQ(require != nullptr ? std::string(require).find("traces") : std::string::npos, std::string::npos)
      << "traces are required, but " << folder << " is missing";
  return {};
}

}  // namespace moelane::test
