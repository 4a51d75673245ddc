#include <poll.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "cuda/check.hpp"
#include "transport/memory/waiter.hpp"
#include "transport/peer/handle.cuh"
#include "transport/peer/world.hpp"

namespace moelane {
namespace peer {
namespace {

using namespace detail::shm;

std::uint64_t random_word() {
  std::uint64_t word = 0;
  if (getrandom(&word, sizeof word, 0) != sizeof word) word = static_cast<std::uint64_t>(now_ns());
  return word;
}

// Tells processes apart, also where two have the same number in different containers.
std::uint64_t this_process() {
  static const std::uint64_t once = random_word();
  return once + static_cast<std::uint64_t>(getpid());
}

// Where the rank that drew `token` hands out its heap number `heap`.
std::string door_name(std::uint64_t token, std::uint64_t heap) {
  return "moelane-heap-" + std::to_string(token) + "-" + std::to_string(heap);
}

// Ends when every rank's has begun. Words of the board: one for each rank, and the own round behind them.
__global__ void meet(PeerHandle net) {
  const int peer = static_cast<int>(threadIdx.x);
  const auto at = [](int rank) { return static_cast<std::uint64_t>(rank) * 8; };
  const std::uint64_t round = *net.word(net.me, at(net.size)) + 1;
  __syncthreads();
  if (peer < net.size) {
    gpu::system_fence();
    net.relaxed_signal(peer, at(net.me), round);
    net.wait_until({at(peer), round, kCounterMask, peer});
  }
  if (peer == 0) *net.word(net.me, at(net.size)) = round;
}

}  // namespace

PeerWorld::PeerWorld(World meeting, int device)
    : WorldImpl(meeting.rank(), meeting.size(), meeting.impl().timeout()), meeting_(std::move(meeting)) {
  std::string failure;
  RankInfo mine{this_process(), random_word(), device, {}};
  try {
    int cards = 0;
    if (size() > PeerHandle::kMaxRanks) {
      throw Error(ErrorKind::argument, "ranks is " + std::to_string(size()) +
                                           ", allowed with transport peer are 1 to " +
                                           std::to_string(PeerHandle::kMaxRanks));
    }
    gpu::check(cudaGetDeviceCount(&cards), "find a card");
    if (device == -1) gpu::check(cudaGetDevice(&mine.device), "find the current card");
    if (mine.device < 0 || mine.device >= cards) {
      throw Error(ErrorKind::argument, "device is " + std::to_string(device) + ", allowed are 0 to " +
                                           std::to_string(cards - 1) + ", and -1 for the current one");
    }
    gpu::check(cudaSetDevice(mine.device), "select a card");
    cudaDeviceProp properties{};
    gpu::check(cudaGetDeviceProperties(&properties, mine.device), "ask a card what it is");
    std::memcpy(mine.card, &properties.uuid, sizeof mine.card);
  } catch (const Error& error) {
    failure = error.what();
  }
  device_ = mine.device;
  agree(failure);
  ranks_.resize(static_cast<std::size_t>(size()));
  all_gather(&mine, sizeof mine, ranks_.data());
  try {
    for (int peer = 0; peer < size(); ++peer) check_access(ranks_[static_cast<std::size_t>(peer)], peer);
  } catch (const Error& error) {
    failure = error.what();
  }
  agree(failure);
  board_ = map_heaps(4096, 4096);
}

const std::string& PeerWorld::transport() const {
  static const std::string name = "peer";
  return name;
}

// What fails one rank fails all, with the same sentence.
void PeerWorld::agree(const std::string& failure) {
  constexpr std::size_t kText = 512;
  std::vector<char> mine(kText), all(kText * static_cast<std::size_t>(size()));
  failure.copy(mine.data(), kText - 1);
  all_gather(mine.data(), kText, all.data());
  for (int r = 0; r < size(); ++r) {
    const char* sentence = all.data() + static_cast<std::size_t>(r) * kText;
    if (*sentence != 0) {
      throw Error(ErrorKind::transport, "rank " + std::to_string(r) + " of a peer world: " + sentence);
    }
  }
}

void PeerWorld::check_access(const RankInfo& peer, int rank) const {
  int cards = 0;
  gpu::check(cudaGetDeviceCount(&cards), "count the cards");
  for (int other = 0; other < cards; ++other) {
    cudaDeviceProp properties{};
    gpu::check(cudaGetDeviceProperties(&properties, other), "ask a card what it is");
    if (other == device_ || std::memcmp(peer.card, &properties.uuid, sizeof peer.card) != 0) continue;
    int access = 0;
    gpu::check(cudaDeviceCanAccessPeer(&access, device_, other), "ask for peer access");
    if (access == 0) {
      throw Error(
          ErrorKind::transport,
          "card " + std::to_string(device_) + " has no peer access to card " + std::to_string(other) +
              " of rank " + std::to_string(rank) +
              "; transport peer needs ranks on one card, or cards joined by NVLink or PCIe peer access");
    }
  }
}

std::vector<int> PeerWorld::readers() const {
  std::vector<int> cards{device_};
  for (const RankInfo& info : ranks_) {
    if (info.process == this_process() && std::count(cards.begin(), cards.end(), info.device) == 0) {
      cards.push_back(info.device);
    }
  }
  return cards;
}

bool PeerWorld::one_card() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const RankInfo& info) {
    return info.process == this_process() && info.device == device_;
  });
}

// Hands the own heap's descriptor to every rank of another process and takes theirs.
void PeerWorld::fetch(const Fd& door, const std::string& doing, const DeviceMemory& own,
                      std::vector<std::shared_ptr<DeviceMemory>>& memory) {
  const std::int64_t deadline = deadline_after(timeout());
  const auto late = [&] {
    return Error(ErrorKind::timeout,
                 "it waited " + std::to_string(timeout()) + " s for its peers to " + doing);
  };
  std::vector<int> others;
  std::vector<Fd> links;
  for (int r = 0; r < size(); ++r) {
    const RankInfo& info = ranks_[static_cast<std::size_t>(r)];
    if (info.process == this_process()) continue;
    others.push_back(r);
    std::optional<Fd> link;
    while (!(link = connect_to(door_name(info.token, heaps_made_)))) {
      if (now_ns() > deadline) throw late();
      nap_until(now_ns() + 1'000'000);
    }
    links.push_back(std::move(*link));
  }
  const Fd handle = own.exported();
  Message message;
  message.kind = Kind::heaps;
  for (std::size_t served = 0; served < others.size();) {
    pollfd polled{door.get(), POLLIN, 0};
    if (!poll_until({&polled, 1}, deadline)) throw late();
    const Fd guest = accept_from(door);
    const std::optional<Peer> who = guest ? peer_of(guest) : std::nullopt;
    if (who && same_user(*who) && send(guest, message, handle.get())) ++served;
  }
  for (std::size_t i = 0; i < links.size(); ++i) {
    pollfd polled{links[i].get(), POLLIN, 0};
    if (!poll_until({&polled, 1}, deadline)) throw late();
    const Received got = receive(links[i]);
    if (got.got != Got::message || !got.fd) {
      throw Error(ErrorKind::transport,
                  "rank " + std::to_string(others[i]) + " went away before it could " + doing);
    }
    memory[static_cast<std::size_t>(others[i])] = std::make_shared<DeviceMemory>(got.fd, device_, own.size());
  }
}

detail::Heaps PeerWorld::map_heaps(std::size_t, std::size_t bytes) {
  const std::string doing = "map heaps";
  const auto me = static_cast<std::size_t>(rank());
  std::vector<std::shared_ptr<DeviceMemory>> memory(static_cast<std::size_t>(size()));
  std::optional<Fd> door;
  std::string failure;
  ++heaps_made_;
  try {
    gpu::check(cudaSetDevice(device_), "select a card");
    memory[me] = std::make_shared<DeviceMemory>(device_, bytes, readers());
    door = listen_at(door_name(ranks_[me].token, heaps_made_));
    if (!door) throw Error(ErrorKind::transport, "the name of its heap is taken");
  } catch (const Error& error) {
    failure = error.what();
  }
  agree(failure);

  // Ranks of this process share the object itself.
  struct Shown {
    const std::shared_ptr<DeviceMemory>* memory;
    std::size_t bytes;
  };
  const Shown mine{&memory[me], bytes};
  std::vector<Shown> shown(static_cast<std::size_t>(size()));
  all_gather(&mine, sizeof mine, shown.data());
  try {
    for (std::size_t r = 0; r < shown.size(); ++r) {
      if (shown[r].bytes != bytes) {
        throw Error(ErrorKind::mismatch, "it asks for a heap of " + std::to_string(bytes) + " bytes, rank " +
                                             std::to_string(r) + " for " + std::to_string(shown[r].bytes));
      }
      if (r != me && ranks_[r].process == this_process()) memory[r] = *shown[r].memory;
    }
    fetch(*door, doing, *memory[me], memory);
  } catch (const Error& error) {
    failure = error.what();
  }
  agree(failure);

  detail::Heaps heaps;
  heaps.bytes = bytes;
  for (const auto& one : memory) heaps.bases.push_back(one->data());
  heaps.owner = std::make_shared<std::vector<std::shared_ptr<DeviceMemory>>>(std::move(memory));
  return heaps;
}

void PeerWorld::barrier(Stream stream) {
  const PeerHandle net = peer_handle(board_.bases, rank(), {}, timeout());
  meet<<<1, PeerHandle::kMaxRanks, 0, static_cast<cudaStream_t>(stream.handle)>>>(net);
  gpu::check(cudaGetLastError(), "start a barrier");
}

}  // namespace peer

World World::peer(World meeting, int device) {
  if (meeting.impl().on_gpu()) {
    throw Error(ErrorKind::argument,
                "meeting is a world of transport peer, allowed is one of threads or shm");
  }
  return World(std::make_shared<peer::PeerWorld>(std::move(meeting), device));
}

}  // namespace moelane
