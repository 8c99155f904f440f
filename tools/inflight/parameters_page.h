// SPDX-License-Identifier: Apache-2.0
// The page docs/reference/parameters.md, from the table of parameters/parameters.h.
#pragma once

#include <string>

namespace inflight::tool {

std::string ParametersPage();

}  // namespace inflight::tool
