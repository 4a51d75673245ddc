#include <thread>
#include <vector>

#include "conformance/cpu_member.hpp"
#include "conformance/crowd.hpp"
#include "conformance/puts.hpp"
#include "conformance/waits.hpp"

namespace moelane::conformance {
namespace {

// Ranks that are threads of this process. `Hidden` keeps the peers' heaps from them, so that all goes by
// puts.
template <bool Hidden>
struct ThreadsFleet {
  using Member = CpuMember;
  static constexpr bool kHidden = Hidden;

  static void run(int ranks, const std::function<void(CpuMember&)>& part) {
    std::vector<World> worlds = World::threads(ranks);
    ASSERT_EQ(worlds[0].transport(), "threads");
    std::vector<std::thread> threads;
    for (World& world : worlds) {
      threads.emplace_back([&part, mine = std::move(world)] {
        try {
          CpuMember member(mine, !Hidden);
          part(member);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << mine.rank() << " threw: " << error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};
static_assert(Fleet<ThreadsFleet<false>>);

struct Names {
  template <class F>
  static std::string GetName(int) {
    return F::kHidden ? "hidden" : "addressable";
  }
};
using Both = testing::Types<ThreadsFleet<false>, ThreadsFleet<true>>;
using One = testing::Types<ThreadsFleet<false>>;  // waits do not know the difference
INSTANTIATE_TYPED_TEST_SUITE_P(Threads, Puts, Both, Names);
INSTANTIATE_TYPED_TEST_SUITE_P(Threads, Waits, One, Names);
INSTANTIATE_TYPED_TEST_SUITE_P(Threads, Crowd, One, Names);

}  // namespace
}  // namespace moelane::conformance
