#include <cstdlib>
#include <latch>
#include <optional>
#include <thread>
#include <vector>

#include "conformance/peer_member.hpp"
#include "conformance/puts.hpp"
#include "conformance/waits.hpp"
#include "cuda/device.hpp"

namespace moelane::conformance {
namespace {

// Ranks that are threads of this process, on the cards in turn.
struct PeerFleet {
  using Member = PeerMember;
  static constexpr bool kHidden = false;  // a heap of a card is always addressable

  static void run(int ranks, const std::function<void(PeerMember&)>& part) {
    // Kernels that wait for each other must not share a queue, nor wait for each other's code to be loaded.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    const int cards = gpu::cards();
    if (cards == 0) GTEST_SKIP() << gpu::reason();
    std::vector<World> worlds = World::threads(ranks);
    std::latch all_done(ranks);  // memory is not freed while kernels wait: that would wait for them
    std::vector<std::thread> threads;
    for (World& meeting : worlds) {
      threads.emplace_back([&, mine = std::move(meeting)] {
        std::optional<PeerMember> member;
        try {
          const int card = mine.rank() % cards;
          gpu::select(card);
          const World world = World::peer(mine, card);
          EXPECT_EQ(world.transport(), "peer");
          part(member.emplace(world));
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << mine.rank() << " threw: " << error.what();
        }
        all_done.arrive_and_wait();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};
static_assert(Fleet<PeerFleet>);

struct Names {
  template <class F>
  static std::string GetName(int) {
    return "addressable";
  }
};
using One = testing::Types<PeerFleet>;
INSTANTIATE_TYPED_TEST_SUITE_P(Peer, Puts, One, Names);
INSTANTIATE_TYPED_TEST_SUITE_P(Peer, Waits, One, Names);
// Not Crowd, which hunts wake-ups that get lost: kernels do not sleep.

}  // namespace
}  // namespace moelane::conformance
