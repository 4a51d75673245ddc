#include <cstdlib>

#include "support/gpu_ranks.hpp"

// These tests are about GPU ranks. With MOELANE_TEST_TRANSPORT=threads most can be tried on CPU ranks, which
// shows that the tests themselves are right.
int main(int argc, char** argv) {
  setenv("MOELANE_TEST_TRANSPORT", "peer", 0);
  return moelane::test::run_all(argc, argv);
}
