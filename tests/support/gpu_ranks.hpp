#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "cuda/device.hpp"
#include "moelane/world.hpp"

// GPU ranks in tests: whether there are any, and what a rank borrows of its card.
namespace moelane::test {

// Whether play() plays on GPU ranks: the environment's MOELANE_TEST_TRANSPORT is "peer".
bool on_gpu();

// What this machine has, asked by a process of its own: one that has used CUDA cannot fork others that do.
struct Machine {
  int cards = 0;
  int multiprocessors = 0;  // of card 0
  std::string reason;       // why there is no card
};
const Machine& machine();

// Ranks take the cards in turn.
int card_of(int rank);
// The multiprocessors that each of `calls` calls may have, of which no card gets more than its share.
int share_of_card(int ranks, int calls_of_a_rank);

// Makes a rank of `world` a GPU rank, on its card.
World seated(World world);
// Whether this process has seated a rank.
bool used_cuda();

// Memory and streams of a card for as long as the pointer lives. They come from a store and go back there:
// the driver, asked to free memory, would wait for the kernels that wait for this rank; and a stream that
// shares its queue with an older one would wait for that one's kernels.
std::shared_ptr<std::byte> borrow_memory(int card, std::size_t bytes);
std::shared_ptr<const gpu::OwnStream> borrow_stream(int card);

// The main() of a test program, on GPU ranks if on_gpu(): it is skipped with a word where there is no card.
int run_all(int argc, char** argv);

}  // namespace moelane::test
