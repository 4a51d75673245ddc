#include "support/gpu_ranks.hpp"

int main(int argc, char** argv) { return moelane::test::run_all(argc, argv); }
