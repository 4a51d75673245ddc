#include <algorithm>

#include "moelane/world.hpp"
#include "transport/memory/available.hpp"
#include "transport/shm/segment.hpp"
#include "transport/shm/star.hpp"
#include "transport/world_impl.hpp"

namespace moelane {
namespace detail {
namespace {

using namespace shm;

class ShmWorld final : public MemoryWorld {
 public:
  explicit ShmWorld(const Place& place) : MemoryWorld(place.rank, place.ranks, place.timeout), star_(place) {}

  const std::string& transport() const override {
    static const std::string name = "shm";
    return name;
  }

  Heaps map_heaps(std::size_t committed, std::size_t bytes) override;

 private:
  Message judge(const std::vector<Message>& asked, Fd& segment) const;

  Star star_;
};

// Rank 0: what everybody asked for, in one segment, or why not.
Message ShmWorld::judge(const std::vector<Message>& asked, Fd& segment) const {
  const std::size_t each = asked[0].bytes;
  std::size_t committed = 0;
  for (std::size_t r = 0; r < asked.size(); ++r) {
    if (asked[r].kind != Kind::ask) {
      return failure(ErrorKind::mismatch,
                     "rank 0 maps heaps, rank " + std::to_string(r) + " does something else");
    }
    if (asked[r].bytes != each) {
      return failure(ErrorKind::mismatch, "rank " + std::to_string(r) + " asks for a heap of " +
                                              std::to_string(asked[r].bytes) + " bytes, rank 0 for " +
                                              std::to_string(each));
    }
    committed += std::min(asked[r].committed, each);
  }
  try {
    check_memory(asked.size(), committed);
  } catch (const Error& error) {
    return failure(error.kind(), error.what());
  }
  try {
    segment = make_segment(each * asked.size());
  } catch (const Error& error) {
    return failure(error.kind(), "rank 0 " + std::string(error.what()));
  }
  Message verdict = asked[0];
  verdict.kind = Kind::heaps;
  return verdict;
}

Heaps ShmWorld::map_heaps(std::size_t committed, std::size_t bytes) {
  const std::string doing = "map the heaps of " + world_text(star_.place().world);
  const std::size_t mine = static_cast<std::size_t>(rank()), ranks = static_cast<std::size_t>(size());
  const std::string me = "rank " + std::to_string(rank());

  // 1. Everybody asks, and gets the same memory.
  Message ask;
  ask.kind = Kind::ask;
  ask.bytes = bytes;
  ask.committed = std::min(committed, bytes);
  if (bytes == 0 || bytes % 4096 != 0 || bytes > (std::size_t{1} << 46) / ranks) {
    ask = failure(ErrorKind::argument, me + " asks for a heap of " + std::to_string(bytes) +
                                           " bytes; allowed are multiples of 4096, together up to 2^46");
  }
  Fd segment;
  Received got = star_.agree(
      ask, [&](const auto& asked) { return judge(asked, segment); }, segment, doing);
  if (rank() != 0) segment = std::move(got.fd);

  // 2. Everybody says whether it could use it, so that all go on or none.
  std::shared_ptr<std::byte> all;
  Message done;
  done.kind = Kind::mapped;
  try {
    all = map_segment(segment, bytes * ranks);
    reserve(segment, all.get(), mine * bytes, ask.committed);
  } catch (const Error& error) {
    done = failure(error.kind(), me + " " + error.what());
  }
  star_.agree(
      done,
      [](const auto&) {
        Message go;
        go.kind = Kind::go;
        return go;
      },
      Fd(), doing);

  Heaps heaps;
  heaps.bytes = bytes;
  for (std::size_t r = 0; r < ranks; ++r) heaps.bases.push_back(all.get() + r * bytes);
  heaps.owner = std::move(all);
  return heaps;
}

}  // namespace
}  // namespace detail

World World::shm(const std::string& name, int rank, int ranks, double timeout) {
  const auto refuse = [](const std::string& sentence) { throw Error(ErrorKind::argument, sentence); };
  if (ranks < 1 || ranks > 1024) refuse("ranks is " + std::to_string(ranks) + ", allowed are 1 to 1024");
  if (rank < 0 || rank >= ranks) {
    refuse("rank is " + std::to_string(rank) + ", allowed are 0 to " + std::to_string(ranks - 1));
  }
  if (name.empty())
    refuse("the world's name is empty; the ranks of one world give the same name of any length");
  if (!(timeout > 0)) refuse("timeout is " + std::to_string(timeout) + ", allowed are seconds above 0");
  return World(std::make_shared<detail::ShmWorld>(detail::shm::Place{name, rank, ranks, timeout}));
}

}  // namespace moelane
