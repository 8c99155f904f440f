// SPDX-License-Identifier: Apache-2.0
// In what two answers to one request differ, as a client sees it (docs/shadow.md, "What is
// compared").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "protocol/http_client/http_client.h"

namespace inflight::shadow {

struct CompareRules {
  // Numbers with a fraction may differ by this part of the larger one, or by this much.
  double tolerance = 1e-4;
  std::vector<std::string> ignored;  // members of JSON by their name, wherever they stand
};

// What differs.
enum class Kind { kStatus, kType, kTensors, kText, kFinish, kBody };
std::string_view NameOf(Kind kind);  // "status"

struct Difference {
  Kind kind;
  std::string place;  // "outputs.OUTPUT0.data[3]"; empty: the whole
  std::string old_value;
  std::string new_value;
};

// The first of each kind and place, at most a few of each kind.
std::vector<Difference> Compare(const http_client::Answer& old_answer,
                                const http_client::Answer& new_answer, const CompareRules& rules);

}  // namespace inflight::shadow
