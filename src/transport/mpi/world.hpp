#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/mpi/net.hpp"
#include "transport/world_impl.hpp"

namespace moelane::detail {

// Ranks that an MPI library started. Those that share a machine share memory, as in shm; to others go
// messages.
class MpiWorld final : public WorldImpl {
 public:
  // Collective.
  MpiWorld(std::shared_ptr<mpi::Net> net, double timeout);

  const std::string& transport() const override;
  Heaps map_heaps(std::size_t committed, std::size_t bytes) override;
  void all_gather(const void* mine, std::size_t bytes, void* all) override {
    net_->all_gather(mine, bytes, all);
  }
  bool all_near() const override { return ranks_here() == size(); }
  int ranks_here() const override { return static_cast<int>(here_.size()); }
  void note_failure() override { net_->note_failure(); }

  mpi::Net& net() { return *net_; }

 private:
  void find_neighbours();

  std::shared_ptr<mpi::Net> net_;
  std::vector<int> here_;            // the ranks of this machine, this one too
  std::shared_ptr<WorldImpl> near_;  // their world: shm
  std::uint32_t next_heaps_ = 0;
};

}  // namespace moelane::detail
