#pragma once

#include <string>

#include "moelane/world.hpp"

// The machine's cards, as this program's ranks share them.
namespace moelane::tools {

// To be called before anything else of CUDA is. `together`: ranks are threads of one process.
void prepare_cuda(bool together);

// gpu::cards(), asked by a process of its own: one that has used CUDA cannot fork ranks that do.
int cards_from_outside();

// Throws Error(transport) with the reason when there is no card.
void require_cards();

// Ranks take the cards that their process sees in turn.
int card_of(int rank);
// Makes a rank of `meeting` a GPU rank, on its card.
World join_cards(World meeting);

// Whether NVIDIA's multi-process service runs in `folder`. Only looks.
struct Mps {
  std::string folder;
  bool runs = false;
};
Mps find_mps();

// What a process may use of a card under MPS, in percent; 100 where nothing is said.
double mps_percentage();

// Multiprocessors for each of `ranks` ranks of a card, of which this process may use `multiprocessors`: those
// are `percentage` of all where ranks are processes (100 where they are threads, which share what the process
// has).
int fair_share(int multiprocessors, int ranks, double percentage);

}  // namespace moelane::tools
