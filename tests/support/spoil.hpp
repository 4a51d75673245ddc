#pragma once

#include <climits>
#include <functional>
#include <string>
#include <vector>

#include "moelane/tensor.hpp"
#include "support/fleet.hpp"
#include "support/paths.hpp"
#include "support/player.hpp"

// What a call is given, wrong in every way: helpers of the tests of bad input.
namespace moelane::test {

// The scene of these tests: two ranks, one lane, every group brings 4 tokens of at most 6.
inline constexpr int kHidden = 33, kTopk = 4, kExperts = 16, kColumns = 2, kMost = 6, kTokens = 4;

inline Scene spoiled_scene(Scene s) {
  s.ranks = 2;
  s.config.in_flight = 1;
  s.config.scale_columns = kColumns;
  s.config.max_tokens = kMost;
  s.habits.none = s.habits.nothing = 0;
  s.tokens = [](int, int) { return kTokens; };
  return s;
}

// A wrong value of one view, and words of the sentence that must follow its name.
struct Spoiling {
  std::function<void(TensorView&)> spoil;
  std::vector<std::string> words;
};

// What can be wrong with any tensor of `dims` dimensions.
inline std::vector<Spoiling> any_tensor(int dims) {
  const Device elsewhere = on_gpu() ? Device::cpu : Device::cuda;
  return {
      {[](TensorView& t) { t = {}; }, {" is not given, allowed is a tensor ["}},
      {[=](TensorView& t) { t.device = elsewhere; },
       {on_gpu() ? ".device is cpu, allowed is cuda" : ".device is cuda, allowed is cpu"}},
      {[=](TensorView& t) { t.ndim = dims + 1; }, {".shape is [", "], allowed is ["}},
      {[=](TensorView& t) { t.ndim = dims == 1 ? 2 : dims - 1; }, {".shape is [", "], allowed is ["}},
      {[](TensorView& t) { t.ndim = 1000000; }, {".shape is [", ", ...], allowed is ["}},
      {[](TensorView& t) { t.ndim = -1; }, {".shape is [], allowed is ["}},
      {[](TensorView& t) { t.shape[0] = -1; }, {".shape is [-1", ", allowed is ["}},
      {[](TensorView& t) { t.shape[0] = std::int64_t{1} << 40; },
       {".shape is [1099511627776", ", allowed is ["}},
      {[](TensorView& t) { t.data = nullptr; }, {".data is null, allowed is the address"}},
  };
}

inline Spoiling dtype(DType wrong, const std::string& allowed) {
  return {[=](TensorView& t) { t.dtype = wrong; },
          {".dtype is " + std::string(name_of(wrong)) + ", allowed is ", allowed}};
}

inline Spoiling extent(int dim, std::int64_t wrong, const std::string& allowed) {
  return {[=](TensorView& t) { t.shape[static_cast<std::size_t>(dim)] = wrong; },
          {".shape is [", std::to_string(wrong), ", allowed is [", allowed,
           "in dimension " + std::to_string(dim)}};
}

inline Spoiling stride(int dim, std::int64_t wrong, const std::string& words) {
  return {[=](TensorView& t) { t.strides[static_cast<std::size_t>(dim)] = wrong; }, {".strides", words}};
}

inline Spoiling endless(int dim) {
  return {[=](TensorView& t) { t.strides[static_cast<std::size_t>(dim)] = INT64_MIN; },
          {".strides[" + std::to_string(dim) + "] is -9223372036854775808, allowed is -"}};
}

inline Spoiling misaligned() {
  return {[](TensorView& t) { t.data = static_cast<std::byte*>(t.data) + 1; },
          {".data is 0x", "allowed is a multiple"}};
}

// Expects that `call` refuses each spoiling of `view`, which it reads.
inline void spoil(const char* name, TensorView& view, const std::vector<Spoiling>& all,
                  const std::function<void()>& call) {
  for (const Spoiling& one : all) {
    const TensorView right = view;
    one.spoil(view);
    std::vector<std::string> words = one.words;
    words[0] = name + words[0];
    try {
      require_words(refusal(ErrorKind::argument, call), words);
    } catch (const Wrong& wrong) {
      throw Wrong("spoiled " + words[0] + ": " + wrong.what());
    }
    view = right;
  }
}

template <class... More>
std::vector<Spoiling> with(std::vector<Spoiling> all, More... more) {
  (all.push_back(more), ...);
  return all;
}

// Plays two steps on two ranks; in the first, `spoiling` comes before the right call of its name.
inline std::string play_after(const Scene& given, const char* before,
                              const std::function<void(Engine&, Player&)>& spoiling) {
  Scene s = given;
  s.reserve();
  return complaints(play(Home::threads, s.ranks, 20, [&](World world) {
    Engine engine(std::move(world), s.config, Placement::table(s.table(0), s.ranks));
    Player player(engine, s, 0);
    player.begin(0);
    const auto here = [&](const char* call) {
      if (std::string(call) == before) spoiling(engine, player);
    };
    const bool split = s.calls_of(0, true) == Calls::split;
    here("dispatch");
    split ? player.dispatch_send() : player.dispatch();
    if (split) {
      here("dispatch_recv");
      player.dispatch_recv();
    }
    const bool halves = s.calls_of(0, false) == Calls::split;
    here("combine");
    halves ? player.combine_send() : player.combine();
    if (halves) {
      here("combine_recv");
      player.combine_recv();
    }
    player.play(1);
  }));
}

}  // namespace moelane::test
