// SPDX-License-Identifier: Apache-2.0
// Names that clients of other servers, or of another API of this one, send, and what they are here:
// for errors alone.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "protocol/openai/body_fields.h"

namespace inflight::openai {

// Of a member that bodies of `kind` do not have: "did you mean 'max_tokens'?". Nothing where the
// name is not one of them, nor near to one that bodies have.
std::optional<std::string> MemberElsewhere(std::string_view name, BodyKinds kind);

// Whether a path without a route is one that PathElsewhere says more of, outside of /v1/.
bool IsPathElsewhere(std::string_view path);

// Of a path without a route, the sentence that says which to ask.
std::string PathElsewhere(std::string_view path);

}  // namespace inflight::openai
