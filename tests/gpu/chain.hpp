#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "moelane/engine.hpp"
#include "support/fleet.hpp"
#include "support/scene.hpp"

namespace moelane::test {

// A lane that plays many steps with no host between them: its experts give back what they get, and what comes
// back goes out again in the next step. So a token is its old self times the sum of its weights in every
// step, and a row of another step, or of another token, has other bits.
class Chain {
 public:
  static constexpr int kRoutings = 8;  // step n has routing n % kRoutings

  // `site`: where its tensors lie, and the stream of its calls.
  Chain(Engine& engine, const Scene& scene, int lane, const Site& site);

  // The calls of a step in their order: the halves of dispatch and of combine. A whole call is made in place
  // of its first half.
  static constexpr int kParts = 4;
  void play(int step, int part);
  void play(int step) {
    for (int part = 0; part < kParts; ++part) play(step, part);
  }

  Stream stream() const { return site_.stream; }
  // For graphs: after all ranks have made theirs, which waits for the card and so for kernels that wait.
  std::function<void()> meet;
  std::vector<std::byte> bytes();  // of all that the calls have written; when they are over

 private:
  TensorView written(const Spec& spec, bool symmetric);
  TensorView read(const Spec& spec, const void* from, std::size_t bytes);

  Engine& engine_;
  const Scene& scene_;
  Site site_;
  int lane_;
  tools::Random random_;
  std::vector<Guarded> written_, read_;
  std::vector<DispatchInput> in_;  // [kRoutings]
  DispatchOutput out_;
};

// What the ranks' chains have written when `play` has been called on each rank and all calls are over;
// [rank]. A rank has one chain, with a stream of its own, on each lane of each of `engines` engines. What
// went wrong is a failure of the test. `on_path` says the path; the rest is the chain's.
std::vector<std::vector<std::byte>> chained(Processor processor, const Scene& on_path, int engines, int lanes,
                                            const std::function<void(std::vector<Chain>&)>& play);

}  // namespace moelane::test
