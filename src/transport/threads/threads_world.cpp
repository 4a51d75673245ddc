#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "moelane/error.hpp"
#include "moelane/world.hpp"
#include "transport/memory/available.hpp"
#include "transport/world_impl.hpp"

namespace moelane {
namespace detail {
namespace {

struct Mapping {
  explicit Mapping(std::size_t size) : bytes(size) {
    base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
      throw Error(ErrorKind::transport,
                  "no memory for heaps of " + std::to_string(bytes) + " bytes together");
    }
  }
  ~Mapping() { munmap(base, bytes); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  void* base;
  std::size_t bytes;
};

// One call of map_heaps, which all ranks make; the first to come makes the memory. What fails one fails all,
// and those who come later too.
struct Gathering {
  std::shared_ptr<Mapping> mapping;
  std::size_t bytes = 0;
  std::vector<bool> here;
  int missing = 0;
  int gone = 0;  // ranks that have come and left again
  // Not an Error: copies of an exception share its text, and each rank throws its own.
  struct Failure {
    ErrorKind kind;
    std::string sentence;
  };
  std::optional<Failure> failed;
};

// What the ranks of one process share.
struct Shared {
  std::mutex mutex;
  std::condition_variable news;
  std::map<std::uint64_t, Gathering> gatherings;  // by number of the call
};

class ThreadsWorld final : public MemoryWorld {
 public:
  ThreadsWorld(std::shared_ptr<Shared> shared, int rank, int size, double timeout)
      : MemoryWorld(rank, size, timeout), shared_(std::move(shared)) {}

  const std::string& transport() const override {
    static const std::string name = "threads";
    return name;
  }

  Heaps map_heaps(std::size_t committed, std::size_t bytes) override {
    const std::uint64_t number = next_heap_++;
    std::unique_lock lock(shared_->mutex);
    Gathering& all = shared_->gatherings[number];
    std::shared_ptr<Mapping> mapping;
    try {
      if (!all.failed) mapping = enter(all, committed, bytes);
      if (mapping != nullptr) {
        lock.unlock();
        reserve(*mapping, committed, bytes);
        lock.lock();
        leave_together(all, lock);
      }
    } catch (const Error& error) {
      if (!lock.owns_lock()) lock.lock();
      if (!all.failed) all.failed = Gathering::Failure{error.kind(), error.what()};
    }
    shared_->news.notify_all();
    const std::optional<Gathering::Failure> failed = all.failed;
    if (++all.gone == size()) shared_->gatherings.erase(number);
    if (failed) throw Error(failed->kind, failed->sentence);
    Heaps heaps;
    heaps.bytes = bytes;
    for (int r = 0; r < size(); ++r) {
      heaps.bases.push_back(static_cast<std::byte*>(mapping->base) + static_cast<std::size_t>(r) * bytes);
    }
    heaps.owner = std::move(mapping);
    return heaps;
  }

 private:
  std::string me() const { return "rank " + std::to_string(rank()); }

  std::shared_ptr<Mapping> enter(Gathering& all, std::size_t committed, std::size_t bytes) const {
    if (bytes == 0 || bytes % 4096 != 0 ||
        bytes > (std::size_t{1} << 46) / static_cast<std::size_t>(size())) {
      throw Error(ErrorKind::argument, me() + " asks for a heap of " + std::to_string(bytes) +
                                           " bytes; allowed are multiples of 4096, together up to 2^46");
    }
    if (all.mapping == nullptr) {
      const auto ranks = static_cast<std::size_t>(size());
      check_memory(ranks, ranks * std::min(committed, bytes));
      all.mapping = std::make_shared<Mapping>(bytes * static_cast<std::size_t>(size()));
      all.bytes = bytes;
      all.here.resize(static_cast<std::size_t>(size()));
      all.missing = size();
    }
    if (all.bytes != bytes) {
      throw Error(ErrorKind::mismatch, me() + " asks for a heap of " + std::to_string(bytes) +
                                           " bytes, a peer for " + std::to_string(all.bytes));
    }
    return all.mapping;
  }

  void reserve(const Mapping& mapping, std::size_t committed, std::size_t bytes) const {
    constexpr int kPopulateWrite =
        23;  // MADV_POPULATE_WRITE, since Linux 5.14; before, memory comes when touched
    auto* const mine = static_cast<std::byte*>(mapping.base) + static_cast<std::size_t>(rank()) * bytes;
    // Large pages for the slots only: symmetric tensors are often sparse, and a large page for a few rows
    // costs more.
    madvise(mine, std::min(committed, bytes), MADV_HUGEPAGE);
    int result;
    do result = madvise(mine, std::min(committed, bytes), kPopulateWrite);
    while (result != 0 && errno == EINTR);
    if (result != 0 && errno != EINVAL) {
      throw Error(ErrorKind::transport, me() + " cannot reserve " + std::to_string(committed) +
                                            " bytes of memory: " + std::strerror(errno));
    }
  }

  // Nobody goes on before all hold the memory: a rank that ends early must not take it away.
  void leave_together(Gathering& all, std::unique_lock<std::mutex>& lock) const {
    all.here[static_cast<std::size_t>(rank())] = true;
    if (--all.missing == 0) shared_->news.notify_all();
    const auto over = [&] { return all.missing == 0 || all.failed; };
    if (!(timeout() < 9e9)) {  // as deadline_after()
      shared_->news.wait(lock, over);
    } else if (!shared_->news.wait_for(lock, std::chrono::duration<double>(timeout()), over)) {
      std::string who;
      for (int r = 0; r < size(); ++r) {
        if (!all.here[static_cast<std::size_t>(r)]) who += (who.empty() ? "" : ", ") + std::to_string(r);
      }
      throw Error(ErrorKind::timeout, me() + " waited " + std::to_string(timeout()) + " s for ranks " + who +
                                          " of " + std::to_string(size()) + " to map heaps");
    }
  }

  std::shared_ptr<Shared> shared_;
  std::uint64_t next_heap_ = 0;
};

}  // namespace
}  // namespace detail

std::vector<World> World::threads(int ranks, double timeout) {
  if (ranks < 1 || ranks > 1024) {
    throw Error(ErrorKind::argument, "ranks is " + std::to_string(ranks) + ", allowed are 1 to 1024");
  }
  auto shared = std::make_shared<detail::Shared>();
  std::vector<World> worlds;
  for (int r = 0; r < ranks; ++r) {
    worlds.emplace_back(std::make_shared<detail::ThreadsWorld>(shared, r, ranks, timeout));
  }
  return worlds;
}

}  // namespace moelane
