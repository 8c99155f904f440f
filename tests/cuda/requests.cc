// SPDX-License-Identifier: Apache-2.0
#include "requests.h"

#include <random>

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

}  // namespace inflight::gpu
