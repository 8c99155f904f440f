// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace inflight::executor {

// How the host thinks that a row's text goes on behind the tokens that it knows, which may lack
// those of a step in flight: `ids` from `first_id` on.
struct Guess {
  int32_t num_known = 0;
  int32_t first_id = 0;
  int32_t num_ids = 0;
};

// Of each row of a step that has drafts, in their order, in pinned memory; nulls: there are none.
struct Guesses {
  const Guess* rows = nullptr;
  const int32_t* ids = nullptr;
  int32_t num_rows = 0;
  int32_t num_ids = 0;
};

}  // namespace inflight::executor
