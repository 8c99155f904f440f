// SPDX-License-Identifier: Apache-2.0
// GET /openapi.json: the routes and objects of this front end, in the form that cog 0.9 publishes.
// GET /docs: the same to read.
#pragma once

#include <string>

#include "protocol/cog/input_fields.h"

namespace inflight::cog {

std::string OpenApi(const InputDefaults& defaults);
std::string DocsPage();

}  // namespace inflight::cog
