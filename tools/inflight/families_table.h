// SPDX-License-Identifier: Apache-2.0
// The families of models and the formats of weights, as JSON: scripts/models_page.py makes the
// table of docs/models.md of it.
#pragma once

#include <string>

namespace inflight::tool {

//   formats   [{"name", "field"}]            field: what asks for it (builder/weight_formats.h)
//   backends  ["cpu", "cuda"]
//   families  [{"architecture", "model_type", "composites": [name], "gguf",
//               "refused": {backend: {format: the words of the refusal}}}]
// A format of a family that is not refused is supported.
std::string FamiliesTable();

}  // namespace inflight::tool
