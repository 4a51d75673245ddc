// The smallest job: a world of one rank, one expert that doubles what it gets, split calls.
#include <cstdint>
#include <cstdio>
#include <moelane/moelane.hpp>

using moelane::DType;
using moelane::TensorView;

int main() {
  moelane::Config config;
  config.experts = config.topk = config.max_tokens = 1;
  config.hidden = 4;
  config.dtype = config.combine_dtype = config.out_dtype = DType::fp32;
  std::printf("%zu bytes of heap\n", config.heap_bytes(1));

  float x[4] = {1, 2, 3, 4}, row[4] = {}, sum[4] = {}, weight = 0.5F;
  std::int32_t id = 0, count = 0;
  moelane::DispatchInput input;
  input.x = TensorView::dense(x, DType::fp32, {1, 4});
  input.topk_ids = TensorView::dense(&id, DType::int32, {1, 1});
  input.topk_weights = TensorView::dense(&weight, DType::fp32, {1, 1});
  moelane::DispatchOutput output;
  output.x = TensorView::dense(row, DType::fp32, {1, 1, 4});
  output.expert_counts = TensorView::dense(&count, DType::int32, {1});

  try {
    moelane::Engine engine(moelane::World::threads(1).front(), config);
    engine.dispatch_send(0, input);
    engine.dispatch_recv(0, output);
    for (float& value : row) value *= 2;
    engine.combine_send(0, output.x);
    engine.combine_recv(0, TensorView::dense(sum, DType::fp32, {1, 4}));
  } catch (const moelane::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::printf("%d row; %g %g %g %g\n", count, sum[0], sum[1], sum[2], sum[3]);
  return count == 1 && sum[0] == 1 && sum[3] == 4 ? 0 : 1;
}
