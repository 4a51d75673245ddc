#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "moelane/error.hpp"
#include "moelane/world.hpp"
#include "support/child.hpp"
#include "transport/shm/socket.hpp"
#include "transport/world_impl.hpp"

namespace moelane::test {

// What a step came to: "" or "timeout: sentence".
inline std::string outcome_of(const std::function<void()>& step) {
  constexpr const char* kKinds[] = {"argument", "capacity", "mismatch", "timeout", "aborted", "transport"};
  try {
    step();
  } catch (const Error& error) {
    return std::string(kKinds[static_cast<int>(error.kind())]) + ": " + error.what();
  }
  return "";
}

inline std::string fresh_name() {
  static int count = 0;
  return "test " + std::to_string(getpid()) + " " + std::to_string(++count);
}

inline void pause_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A process that joins as `rank` and then does `then`; its report is what that came to.
inline Child joining(
    const std::string& name, int rank, int ranks, double timeout,
    const std::function<void(const World&)>& then = [](const World&) {}) {
  return Child([=] { return outcome_of([&] { then(World::shm(name, rank, ranks, timeout)); }); });
}

// As the library makes it, for any user.
inline std::pair<sockaddr_un, socklen_t> address_of(uid_t user, const std::string& name) {
  const std::string full = "moelane/" + std::to_string(user) + "/" + name;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, full.data(), full.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + full.size())};
}

// A guest of a world that is no rank: connected to its rank 0, as soon as there is one.
inline detail::shm::Fd stranger(const std::string& name) {
  for (int i = 0; i < 5000; ++i) {
    if (auto link = detail::shm::connect_to(name)) return std::move(*link);
    pause_for(0.001);
  }
  ADD_FAILURE() << "nobody opened world '" << name << "'";
  return {};
}

// Shows that the world works.
inline void exchange(const World& world) {
  World mine = world;
  std::vector<int> all(static_cast<std::size_t>(mine.size()), -1);
  const int rank = mine.rank() * 3;
  mine.all_gather(&rank, sizeof rank, all.data());
  for (int r = 0; r < mine.size(); ++r) ASSERT_EQ(all[static_cast<std::size_t>(r)], r * 3);
  mine.barrier();
}

inline constexpr std::size_t kPage = 4096;

inline std::uint64_t& word(const detail::Heaps& heaps, int rank, std::size_t index) {
  return reinterpret_cast<std::uint64_t*>(heaps.bases[static_cast<std::size_t>(rank)])[index];
}

// All ranks do the same; what each came to.
inline std::vector<std::string> all_do(int ranks, double timeout,
                                       const std::function<void(const World&)>& then) {
  const std::string name = fresh_name();
  std::vector<Child> children;
  for (int rank = 0; rank < ranks; ++rank) children.push_back(joining(name, rank, ranks, timeout, then));
  std::vector<std::string> outcomes;
  for (Child& child : children) outcomes.push_back(child.join());
  return outcomes;
}

// Every rank writes its number into every heap and sees everybody's in its own.
inline void share(World world, std::size_t committed, std::size_t bytes) {
  const detail::Heaps heaps = world.impl().map_heaps(committed, bytes);
  ASSERT_EQ(heaps.bytes, bytes);
  ASSERT_EQ(heaps.bases.size(), static_cast<std::size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r) {
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(heaps.bases[static_cast<std::size_t>(r)]) % kPage, 0u);
    ASSERT_EQ(word(heaps, r, bytes / 8 - 1 - static_cast<std::size_t>(world.rank())), 0u);
  }
  world.barrier();
  for (int r = 0; r < world.size(); ++r) {
    const auto value = static_cast<std::uint64_t>(world.rank() * 100 + r + 1);
    word(heaps, r, bytes / 8 - 1 - static_cast<std::size_t>(world.rank())) = value;
  }
  world.barrier();
  for (int r = 0; r < world.size(); ++r) {
    const auto value = static_cast<std::uint64_t>(r * 100 + world.rank() + 1);
    ASSERT_EQ(word(heaps, world.rank(), bytes / 8 - 1 - static_cast<std::size_t>(r)), value);
  }
}

}  // namespace moelane::test
