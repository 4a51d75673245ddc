#include "support/gpu_ranks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

#include "support/child.hpp"

namespace moelane::test {
namespace {

constexpr int kSkipped = 77;  // ctest's SKIP_RETURN_CODE
constexpr std::size_t kBlock = std::size_t{1} << 30;
constexpr int kQueues = 32;  // as CUDA_DEVICE_MAX_CONNECTIONS below

// What was borrowed of one card and came back, for whoever comes next.
struct Store {
  std::map<std::size_t, std::vector<std::byte*>> memory;  // by size
  std::vector<std::shared_ptr<const gpu::OwnStream>> streams;
  std::vector<gpu::Memory> blocks;
  std::size_t left = 0;  // of the last block
};

std::mutex mutex;
std::atomic<bool> seated_any{false};

// Never destroyed: when static objects are, the driver may be gone.
Store& store_of(int card) {
  static auto* const stores = new std::map<int, Store>;
  return (*stores)[card];
}

std::byte* cut(Store& store, std::size_t bytes) {
  if (bytes > store.left) {
    store.left = std::max(kBlock, bytes);
    store.blocks.emplace_back(store.left);
  }
  const gpu::Memory& block = store.blocks.back();
  std::byte* const cut = block.data() + (block.bytes() - store.left);
  store.left -= bytes;
  return cut;
}

}  // namespace

bool on_gpu() {
  const char* const given = std::getenv("MOELANE_TEST_TRANSPORT");
  return given != nullptr && std::string(given) == "peer";
}

const Machine& machine() {
  static const Machine found = [] {
    const std::string report = Child([] {
                                 const int cards = gpu::cards();
                                 const int multiprocessors = cards > 0 ? gpu::card(0).multiprocessors : 0;
                                 return std::to_string(cards) + " " + std::to_string(multiprocessors) + " " +
                                        (cards > 0 ? "" : gpu::reason());
                               }).join();
    Machine machine;
    std::istringstream text(report);
    text >> machine.cards >> machine.multiprocessors >> std::ws;
    std::getline(text, machine.reason);
    return machine;
  }();
  return found;
}

int card_of(int rank) { return rank % std::max(1, machine().cards); }

int share_of_card(int ranks, int calls_of_a_rank) {
  const int cards = std::max(1, machine().cards);
  const int on_a_card = (ranks + cards - 1) / cards * calls_of_a_rank;
  return std::max(1, machine().multiprocessors / on_a_card);
}

World seated(World world) {
  seated_any = true;
  const int card = card_of(world.rank());
  gpu::select(card);
  {
    // Before any kernel waits for this rank, so that nothing waits for it.
    const std::lock_guard lock(mutex);
    Store& store = store_of(card);
    if (store.blocks.empty()) {
      store.blocks.emplace_back(store.left = kBlock);
      for (int n = 0; n < kQueues; ++n) store.streams.push_back(std::make_shared<const gpu::OwnStream>());
    }
  }
  return World::peer(std::move(world), card);
}

bool used_cuda() { return seated_any; }

std::shared_ptr<std::byte> borrow_memory(int card, std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(bytes, 256));
  const std::lock_guard lock(mutex);
  Store& store = store_of(card);
  std::vector<std::byte*>& free = store.memory[size];
  if (free.empty()) {
    gpu::select(card);
    free.push_back(cut(store, size));
  }
  std::byte* const data = free.back();
  free.pop_back();
  return {data, [&free](std::byte* back) {
            const std::lock_guard lock_again(mutex);
            free.push_back(back);
          }};
}

std::shared_ptr<const gpu::OwnStream> borrow_stream(int card) {
  const std::lock_guard lock(mutex);
  auto& streams = store_of(card).streams;
  if (streams.empty()) {
    gpu::select(card);
    streams.push_back(std::make_shared<const gpu::OwnStream>());
  }
  const auto stream = streams.back();
  streams.pop_back();
  return {stream.get(), [&streams, stream](const gpu::OwnStream*) {
            const std::lock_guard lock_again(mutex);
            streams.push_back(stream);
          }};
}

int run_all(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!on_gpu() || testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  // Kernels that wait for each other must not share a queue, nor wait for each other's code to be loaded.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(kQueues).c_str(), 1);
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  if (machine().cards == 0) {
    std::printf("skipped: %s\n", machine().reason.c_str());
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}

}  // namespace moelane::test
