// SPDX-License-Identifier: Apache-2.0
// Members of a generate body that are neither an input nor a parameter of a model that answers with
// text: mostly names that were spelt wrong. The contract lets them pass without effect.
#pragma once

#include <string>

#include "serving/core/model.h"
#include "serving/core/request.h"

namespace inflight::kserve_http {

// "'temprature' is not known, did you mean 'temperature'?" of each, at most eight of them, in
// characters that a header may have; empty where there is none, or the model may have a use for
// them.
std::string UnknownMembers(const serving::Model& model, const serving::Parameters& parameters);

}  // namespace inflight::kserve_http
