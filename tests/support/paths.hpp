#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "support/fleet.hpp"
#include "support/gpu_ranks.hpp"
#include "support/scene.hpp"

// Every way for rows to travel, in every layout: what most protocol tests are instantiated over.
namespace moelane::test {

struct Path {
  const char* name;
  Way way;
  Calls calls;
  bool force_puts = false, partial_sums = false;
};

// GPU ranks do not send by puts what they can address, and a whole call of the put way is its two halves.
inline const std::vector<Path>& paths() {
  static const std::vector<Path> all = [] {
    std::vector<Path> list{
        {"direct_whole", Way::direct, Calls::whole},
        {"auto_mixed", Way::automatic, Calls::mixed},
        {"put_whole", Way::put, Calls::whole},
        {"put_split", Way::put, Calls::split},
        {"put_mixed", Way::put, Calls::mixed},
        {"puts_split", Way::put, Calls::split, true},
        {"puts_mixed", Way::automatic, Calls::mixed, true},
        {"sums_mixed", Way::automatic, Calls::mixed, false, true},
        {"sums_puts_split", Way::put, Calls::split, true, true},
    };
    if (on_gpu()) {
      std::erase_if(list, [](const Path& path) {
        return path.force_puts || (path.way == Way::put && path.calls != Calls::split);
      });
    }
    return list;
  }();
  return all;
}

using Case = std::tuple<Layout, Path>;

inline std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Layout layout : {Layout::padded, Layout::contiguous, Layout::ranked}) {
    for (const Path& path : paths()) {
      if (layout != Layout::ranked || !path.partial_sums) all.emplace_back(layout, path);
    }
  }
  return all;
}

inline std::string case_name(const testing::TestParamInfo<Case>& info) {
  return std::string(name_of(std::get<Layout>(info.param))) + "_" + std::get<Path>(info.param).name;
}

// A small scene that goes that way: 4 ranks, 16 experts, top-4, rows of 33 elements.
inline Scene scene_on(const Path& path, Layout layout) {
  Scene scene;
  scene.ranks = 4;
  scene.config.experts = 16;
  scene.config.topk = 4;
  scene.config.hidden = 33;
  scene.config.max_tokens = 6;
  scene.config.layout = layout;
  scene.config.way = path.way;
  scene.config.force_puts = path.force_puts;
  scene.config.partial_sums = path.partial_sums;
  scene.config.timeout = on_gpu() ? 8 : 20;  // a card's time is dear
  scene.calls = path.calls;
  return scene;
}

class OnPath : public testing::TestWithParam<Case> {
 protected:
  static Scene scene() { return scene_on(std::get<Path>(GetParam()), std::get<Layout>(GetParam())); }
};

// Tests of waiting, to which the layout is all one: on every path as threads, and on some as processes.
using HomedPath = std::tuple<Home, Path>;

inline std::vector<HomedPath> homed_paths() {
  std::vector<HomedPath> all;
  for (const Path& path : paths()) all.emplace_back(Home::threads, path);
  for (const char* name : {"direct_whole", "auto_mixed", "puts_split", "sums_mixed"}) {
    for (const Path& path : paths()) {
      if (on_gpu() && path.partial_sums) continue;  // as above
      if (std::string(path.name) == name) all.emplace_back(Home::processes, path);
    }
  }
  return all;
}

inline std::string homed_path_name(const testing::TestParamInfo<HomedPath>& info) {
  return std::string(name_of(std::get<Home>(info.param))) + "_" + std::get<Path>(info.param).name;
}

class OnHomedPath : public testing::TestWithParam<HomedPath> {
 protected:
  static Scene scene() { return scene_on(std::get<Path>(GetParam()), Layout::padded); }
  // What went wrong when `part` is played by the scene's ranks.
  static std::string played(const Scene& scene, const Part& part) {
    return complaints(play(std::get<Home>(GetParam()), scene.ranks, 8, part));
  }
};

#define MOELANE_ON_HOMED_PATHS(suite) \
  INSTANTIATE_TEST_SUITE_P(Path, suite, testing::ValuesIn(homed_paths()), homed_path_name)

// First in a test whose subject GPU ranks do not have.
#define MOELANE_SKIP_ON_GPU(why) \
  if (on_gpu()) GTEST_SKIP() << "not on GPU ranks: " << why

// First in a test that the program of the GPU tests cannot play on CPU ranks.
#define MOELANE_SKIP_ON_CPU(why) \
  if (!on_gpu()) GTEST_SKIP() << "not on CPU ranks: " << why

// Instantiates a suite, a class that inherits OnPath, over all cases.
#define MOELANE_ON_EVERY_PATH(suite) \
  INSTANTIATE_TEST_SUITE_P(Path, suite, testing::ValuesIn(cases()), case_name)

}  // namespace moelane::test
