// SPDX-License-Identifier: Apache-2.0
#include "requests.h"

#include <random>

#include "gpu_test.h"

namespace inflight::gpu {

Request RandomRequest(int prompt_len, int max_tokens, int vocab_size, unsigned seed) {
  std::mt19937 random(seed);
  Request request;
  for (int t = 0; t < prompt_len; ++t)
    request.input_ids.push_back(static_cast<TokenId>(random() % static_cast<unsigned>(vocab_size)));
  request.max_tokens = max_tokens;
  request.output.return_log_probs = true;
  return request;
}

std::unique_ptr<Executor> MakeExecutor(const std::shared_ptr<const model::Engine>& engine,
                                       Device& device, const ExecutorOptions& options) {
  return Must(executor::CreateExecutor(Must(executor::CreateLocalBackend(engine, device, options)),
                                       options));
}

std::vector<std::shared_ptr<CollectingSink>> RunAll(Executor& executor,
                                                    const std::vector<Request>& requests) {
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (const Request& request : requests) {
    sinks.push_back(std::make_shared<CollectingSink>());
    Must(executor.Enqueue(request, sinks.back()));
  }
  for (const auto& sink : sinks) sink->Wait();
  return sinks;
}

}  // namespace inflight::gpu
