// SPDX-License-Identifier: Apache-2.0
// The key `decoding_mode`: which samplers the requests of a model may use
// (docs/reference/repositories.md, "decoding_mode"). A request for one that the mode leaves out is
// refused by name; greedy requests need none.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "contract/key_report.h"
#include "inflight/request.h"
#include "inflight/status.h"

namespace inflight::contract {

enum class DecodingMode : uint8_t {
  kAuto,  // each request by what it asks for: beam search, top-k or top-p
  kTopK,
  kTopP,
  kTopKTopP,
  kBeamSearch,
  kMedusa,  // of a model whose Medusa heads propose tokens: as kAuto
};

std::optional<DecodingMode> FindDecodingMode(std::string_view name);

// What takes effect where no request may ask for more beams: without beams "auto" and "beam_search"
// are top_k_top_p. "medusa" is auto, and says who proposes tokens: where it is not what the model
// does (`has_medusa`: its heads propose some), a line in the log says so. The line of the key in
// `report` says all of that.
DecodingMode ResolveDecodingMode(DecodingMode asked, int max_beam_width, bool has_medusa,
                                 KeyReport* report);

// kInvalidArgument where no sampler of the mode serves the request; `name_of` says how the client
// calls an input of the LLM.
Status CheckDecodingMode(DecodingMode mode, const SamplingParams& sampling,
                         const std::function<std::string(std::string_view)>& name_of);

}  // namespace inflight::contract
