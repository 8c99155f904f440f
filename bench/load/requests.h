// SPDX-License-Identifier: Apache-2.0
// Request bytes and what can be told from answers, for the HTTP protocols.
#pragma once

#include <string>
#include <string_view>

#include "bench/load/load.h"

namespace inflight::bench {

std::string HttpRequestBytes(const LoadOptions& options, const LoadPrompt& prompt);

// Tokens in a JSON answer or event: the output ids where the model gives ids, else nothing.
int CountOutputIds(LoadProtocol protocol, std::string_view json);

// "prefix: message" of {"error": "message"}, with digits blanked so that equal kinds are equal.
std::string ErrorKind(std::string_view prefix, std::string_view body);

}  // namespace inflight::bench
