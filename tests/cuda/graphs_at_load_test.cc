// SPDX-License-Identifier: Apache-2.0
// Which graphs a model has when it is loaded: of every kind of step that has one, for greedy and
// for sampled rows. Those of steps whose logits the host reads come at their first use.
#include <cstdlib>

#include "counted_loop.h"
#include "executor/cuda/step_graphs.h"
#include "requests.h"
#include "tiny_models.h"

namespace inflight::gpu {
namespace {

using executor::cuda::GraphShapes;

class GraphsAtLoadTest : public GpuTest {
 protected:
  // Steps until all requests have ended; how many graphs were recorded meanwhile.
  static int64_t GraphsOf(CountedLoop& loop, const std::vector<Request>& requests) {
    const int64_t before = counted_calls.num_graphs;
    std::vector<std::shared_ptr<CollectingSink>> sinks;
    for (const Request& request : requests) sinks.push_back(loop.Enqueue(request));
    while (loop.Step()) {
    }
    for (const auto& sink : sinks) EXPECT_TRUE(sink->last.status.ok() && sink->last.is_final);
    return counted_calls.num_graphs - before;
  }
};

TEST_F(GraphsAtLoadTest, EveryBucketHasAGreedyAndASampledGraph) {
  const model::EngineLimits limits = TinyLimits();
  const auto shapes = GraphShapes(limits.max_batch_size, limits.max_num_tokens);
  setenv("INFLIGHT_CUDA_GRAPHS", "all", 1);  // a slow machine would leave some to their first use
  const int64_t before = counted_calls.num_graphs;
  CountedLoop loop(RandomEngine(TinyLlama(), limits, device()), device());
  const int64_t at_load = counted_calls.num_graphs - before;
  unsetenv("INFLIGHT_CUDA_GRAPHS");
  EXPECT_EQ(at_load, 2 * static_cast<int64_t>(shapes.size()));

  for (const auto& shape : shapes) {
    SCOPED_TRACE(std::to_string(shape.num_rows) + " rows of " + std::to_string(shape.num_tokens) +
                 " tokens");
    for (const bool is_sampled : {false, true}) {
      std::vector<Request> requests;
      for (int i = 0; i < shape.num_rows; ++i) {
        const int prompt_len = shape.has_prefill() ? shape.num_tokens / shape.num_rows : 3;
        requests.push_back(RandomRequest(prompt_len, 4, 512, static_cast<unsigned>(i)));
        if (is_sampled) requests.back().sampling.top_k = 20;
      }
      EXPECT_EQ(GraphsOf(loop, requests), 0);
    }
  }

  std::vector<Request> searches = {RandomRequest(5, 6, 512, 1)};
  searches[0].sampling.beam_width = 3;
  EXPECT_GT(GraphsOf(loop, searches), 0) << "a forward pass alone";
  EXPECT_EQ(GraphsOf(loop, searches), 0) << "the second time";
}

}  // namespace
}  // namespace inflight::gpu
