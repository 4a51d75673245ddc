#include <unistd.h>

#include <string>
#include <vector>

#include "conformance/cpu_member.hpp"
#include "conformance/crowd.hpp"
#include "conformance/puts.hpp"
#include "conformance/waits.hpp"
#include "support/child.hpp"

namespace moelane::conformance {
namespace {

// Ranks that are forked processes.
template <bool Hidden>
struct ShmFleet {
  using Member = CpuMember;
  static constexpr bool kHidden = Hidden;

  static void run(int ranks, const std::function<void(CpuMember&)>& part) {
    static int worlds = 0;
    const std::string name = "conformance " + std::to_string(getpid()) + " " + std::to_string(++worlds);
    std::vector<test::Child> children;
    for (int rank = 0; rank < ranks; ++rank) {
      children.emplace_back([&] {
        const World world = World::shm(name, rank, ranks);
        EXPECT_EQ(world.transport(), "shm");
        CpuMember member(world, !Hidden);
        part(member);
        return std::string();
      });
    }
    for (test::Child& child : children) child.join();
  }
};
static_assert(Fleet<ShmFleet<false>>);

struct Names {
  template <class F>
  static std::string GetName(int) {
    return F::kHidden ? "hidden" : "addressable";
  }
};
using Both = testing::Types<ShmFleet<false>, ShmFleet<true>>;
using One = testing::Types<ShmFleet<false>>;  // waits do not know the difference
INSTANTIATE_TYPED_TEST_SUITE_P(Shm, Puts, Both, Names);
INSTANTIATE_TYPED_TEST_SUITE_P(Shm, Waits, One, Names);
INSTANTIATE_TYPED_TEST_SUITE_P(Shm, Crowd, One, Names);

}  // namespace
}  // namespace moelane::conformance
