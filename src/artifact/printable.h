// SPDX-License-Identifier: Apache-2.0
// Text of a file within an error message: quoted, cut, and without bytes that a terminal obeys.
#pragma once

#include <string>
#include <string_view>

namespace inflight::artifact {

// 'text'; bytes outside printable ASCII become \xNN, and of long texts the beginning is kept.
std::string Printable(std::string_view text);

}  // namespace inflight::artifact
