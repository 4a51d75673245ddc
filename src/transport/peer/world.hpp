#pragma once

#include <memory>
#include <string>

#include "transport/peer/memory.hpp"
#include "transport/world_impl.hpp"

namespace moelane::peer {

// Ranks on GPUs whose heaps are addressable by each other. Who they are and what they have to tell each other
// on the host goes through `meeting`, a world of the same ranks on CPUs; heaps lie on the cards.
class PeerWorld final : public detail::WorldImpl {
 public:
  PeerWorld(World meeting, int device);

  const std::string& transport() const override;
  detail::Heaps map_heaps(std::size_t committed, std::size_t bytes) override;
  void all_gather(const void* mine, std::size_t bytes, void* all) override {
    meeting_.all_gather(mine, bytes, all);
  }
  bool on_gpu() const override { return true; }
  using WorldImpl::barrier;
  void barrier(Stream stream) override;

  int device() const { return device_; }
  // Whether all ranks are of this process and on this card.
  bool one_card() const;
  detail::WorldImpl& meeting() const { return meeting_.impl(); }

 private:
  // What a rank is, in a form that every process can compare.
  struct RankInfo {
    std::uint64_t process, token;
    int device;
    char card[16];  // its UUID
  };

  void agree(const std::string& failure);
  void check_access(const RankInfo& peer, int rank) const;
  std::vector<int> readers() const;
  void fetch(const detail::shm::Fd& door, const std::string& doing, const DeviceMemory& own,
             std::vector<std::shared_ptr<DeviceMemory>>& memory);

  World meeting_;
  int device_;
  std::vector<RankInfo> ranks_;  // [ranks]
  std::uint64_t heaps_made_ = 0;
  detail::Heaps board_;  // of barrier()
};

}  // namespace moelane::peer
